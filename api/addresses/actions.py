"""Retry and skip messages, pause and resume the cycle."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from api.addresses import queries
from api.addresses.context import CYCLE_TRIGGER, INT64_MAX, load_effective_settings, routes
from api.addresses.queries import MessagePath, build_cycle_response, find_or_create_cycle_schedule
from api.addresses.responses import (
    CountFailedResponse,
    CycleResponse,
    MessageResponse,
    RetryMessagesResponse,
    SkipMessagesResponse,
)
from api.http import validation
from api.http.models import OperatorRequest, Request
from api.http.routes import Call, RouteAccess
from api.http.validation import BodyTimestamp, QueryTimestamp
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from domain.faults import Conflict, Missing
from infra import starts
from stores.addresses import actions
from stores.addresses.actions import RETRIED_MAX, ActorWithReason
from stores.addresses.search import MessageSearchConditions

MessageId = Annotated[int, Field(ge=1, le=INT64_MAX)]


class SkipMessageRequest(OperatorRequest):
    """The reason for skipping a message."""

    though_touched: bool = Field(
        default=False,
        description="skip it even if modules have applied it, or may have; they then differ from the others",
    )


class FailedMessagesFilter(Request):
    """Which failed messages; without a condition, all of them."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX, description="either UPRN of the message")
    state: Literal[MessageState.FAILED, MessageState.GIVEN_UP] | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are unfinished for this reason")

    def to_search_conditions_by_state_and_retry_limit(self, retries_until_given_up: int) -> MessageSearchConditions:
        """Return the conditions: what is given up has failed in that many cycles, what has failed in fewer."""
        named = self.model_dump(exclude={"state", "who", "reason", "limit"})
        return MessageSearchConditions(
            **named,
            retries_from=retries_until_given_up if self.state is MessageState.GIVEN_UP else None,
            retries_below=retries_until_given_up if self.state is MessageState.FAILED else None,
        )


class CountFailedQuery(FailedMessagesFilter):
    """Which failed messages to count; without a condition, all of them."""

    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


class FailedMessagesRequest(FailedMessagesFilter, OperatorRequest):
    """Which failed messages to retry or skip; without a condition, all of them."""

    ids: list[MessageId] | None = Field(
        default=None, min_length=1, max_length=RETRIED_MAX, description="only these, within the other conditions"
    )
    created_after: BodyTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: BodyTimestamp | None = Field(default=None, description="received before this time")
    limit: int = Field(
        default=RETRIED_MAX, ge=1, le=RETRIED_MAX, description="the most messages to change, oldest first"
    )

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


_PROBLEMS = {"not_found": Missing, "message_done": Conflict, "message_being_processed": Conflict}


@routes.post(
    "/v1/addresses/messages/{message_id}/retry",
    access=RouteAccess.ADMIN,
    problems={**_PROBLEMS, "message_not_failed": Conflict},
)
async def retry_message(call: Call, path: MessagePath, body: OperatorRequest) -> MessageResponse:
    """Retry a failed message, as if it had never failed.

    Modules that have applied it are not called again. If a module has applied something younger of its UPRN, the
    message ends as superseded.
    """
    done = await actions.retry_message(call.services.database, path.message_id, ActorWithReason(body.who, body.reason))
    message = await queries.load_message(call, path.message_id)
    if not done:
        raise _build_not_retryable_conflict(message)
    call.request.app[CYCLE_TRIGGER].request_cycle()
    return message


@routes.post(
    "/v1/addresses/messages/{message_id}/retry-chain",
    access=RouteAccess.ADMIN,
    problems={**_PROBLEMS, "message_not_failed": Conflict, "too_many_linked_messages": Conflict},
)
async def retry_linked_messages(call: Call, path: MessagePath, body: OperatorRequest) -> RetryMessagesResponse:
    """Retry a failed message, and all failed messages that its addresses link to it.

    Two messages are linked if they name a common UPRN, or are linked by others. They are retried in the order of
    receipt, so that none overtakes an earlier one. Of more than 10,000, none is retried: `POST
    /v1/addresses/messages:retry` retries the oldest first.
    """
    outcome = await actions.retry_linked_messages(
        call.services.database, path.message_id, ActorWithReason(body.who, body.reason)
    )
    if outcome.remaining:
        raise Conflict(
            "too_many_linked_messages",
            f"More than {RETRIED_MAX:,} failed messages are linked to message {path.message_id}; none was retried.",
            "POST /v1/addresses/messages:retry retries all failed messages, linked or not, the oldest first, at most "
            "10,000 a request: narrow it by conditions, or send it again for the rest. Those that wait for a paused "
            "module are among them only with `kind` `paused`.",
        )
    if not outcome.changed:
        raise _build_not_retryable_conflict(await queries.load_message(call, path.message_id))
    call.request.app[CYCLE_TRIGGER].request_cycle()
    return RetryMessagesResponse(retried=outcome.changed, busy=outcome.busy, remaining=outcome.remaining)


@routes.post("/v1/addresses/messages:retry", access=RouteAccess.ADMIN)
async def retry_messages(call: Call, body: FailedMessagesRequest) -> RetryMessagesResponse:
    """Retry all failed messages that match, and return their number."""
    actor = ActorWithReason(body.who, body.reason)
    outcome = await actions.retry_messages(
        call.services.database, await _build_message_filter(call, body), body.limit, actor
    )
    if outcome.changed:
        call.request.app[CYCLE_TRIGGER].request_cycle()
    return RetryMessagesResponse(retried=outcome.changed, busy=outcome.busy, remaining=outcome.remaining)


@routes.post("/v1/addresses/messages:skip", access=RouteAccess.ADMIN)
async def skip_messages(call: Call, body: FailedMessagesRequest) -> SkipMessagesResponse:
    """Give up all failed messages that match for good, and return their number.

    Messages named by `ids` need not have failed. A message that a module has applied, or may have, is left alone: skip
    it by itself, with `though_touched`.
    """
    actor = ActorWithReason(body.who, body.reason)
    outcome = await actions.skip_messages(
        call.services.database, await _build_message_filter(call, body), body.limit, actor
    )
    if outcome.changed:
        # Messages that waited for them are due now.
        call.request.app[CYCLE_TRIGGER].request_cycle()
    return SkipMessagesResponse(
        skipped=outcome.changed, busy=outcome.busy, touched=outcome.touched, remaining=outcome.remaining
    )


@routes.get("/v1/addresses/messages:count", access=RouteAccess.ADMIN)
async def count_failed_messages(call: Call, query: CountFailedQuery) -> CountFailedResponse:
    """Count the failed messages that match: those that would be retried or skipped."""
    found = await actions.count_failed_messages(call.services.database, await _build_message_filter(call, query))
    return CountFailedResponse(messages=found.free, touched=found.touched, busy=found.busy)


@routes.post(
    "/v1/addresses/messages/{message_id}/skip",
    access=RouteAccess.ADMIN,
    problems={**_PROBLEMS, "message_touched": Conflict},
)
async def skip_message(call: Call, path: MessagePath, body: SkipMessageRequest) -> MessageResponse:
    """Give a message up for good: no module is called about it any more.

    A message that a module has applied, or may have, is skipped only with `though_touched`.
    """
    actor = ActorWithReason(body.who, body.reason)
    done = await actions.skip_message(
        call.services.database, path.message_id, actor, though_touched=body.though_touched
    )
    message = await queries.load_message(call, path.message_id)
    if not done:
        raise _build_not_skippable_conflict(message)
    # Messages that waited for it are due now.
    call.request.app[CYCLE_TRIGGER].request_cycle()
    return message


def _build_not_retryable_conflict(message: MessageResponse) -> Conflict:
    if message.state is MessageState.WAITING:
        return Conflict(
            "message_not_failed",
            f"Message {message.message_id} has not been tried yet.",
            "The next cycle loads it; if none runs, see GET /v1/addresses/cycle.",
        )
    return _build_done_or_busy_conflict(message)


async def _build_message_filter(call: Call, conditions: FailedMessagesFilter) -> MessageSearchConditions:
    return conditions.to_search_conditions_by_state_and_retry_limit(
        (await load_effective_settings(call)).failed_cycles_max
    )


def _build_not_skippable_conflict(message: MessageResponse) -> Conflict:
    if message.state in (MessageState.DONE, MessageState.PROCESSING):
        return _build_done_or_busy_conflict(message)
    have = [module for module, ack in message.acks.items() if ack.ack == "Y"]
    unsure = [module for module in (message.waits.unsure if message.waits else ()) if module not in have]
    facts = [
        sentence
        for modules, sentence in (
            (have, f"has been applied by {', '.join(have)}"),
            (unsure, f"may have been applied by {', '.join(unsure)}"),
        )
        if modules
    ]
    return Conflict(
        "message_touched",
        f"Message {message.message_id} {' and '.join(facts) or 'supersedes one that a module may have applied'}: "
        "if it is skipped now, the modules will differ.",
        "Retry it, or send though_touched: true and repair the modules yourself.",
    )


def _build_done_or_busy_conflict(message: MessageResponse) -> Conflict:
    if message.state is MessageState.DONE:
        return Conflict(
            "message_done",
            f"Message {message.message_id} is done.",
            "Only unfinished messages can be retried or skipped.",
        )
    return Conflict(
        "message_being_processed",
        f"Message {message.message_id} is being processed now.",
        "Try again when its cycle has ended; GET /v1/addresses/messages/… shows its state.",
    )


@routes.post("/v1/addresses/cycle/pause", access=RouteAccess.ADMIN)
async def pause_cycle(call: Call, body: OperatorRequest) -> CycleResponse:
    """Pause the cycle: a running one ends, and no other begins; intake goes on."""
    handle = await find_or_create_cycle_schedule(call)
    await starts.set_schedule_paused(handle, f"{body.who}: {body.reason}", is_paused=True)
    await actions.record_action_of_all_messages(call.services.database, "pause", ActorWithReason(body.who, body.reason))
    return await build_cycle_response(call, handle)


@routes.post("/v1/addresses/cycle/resume", access=RouteAccess.ADMIN)
async def resume_cycle(call: Call, body: OperatorRequest) -> CycleResponse:
    """Resume a paused cycle; messages received meanwhile are loaded at once."""
    handle = await find_or_create_cycle_schedule(call)
    await starts.set_schedule_paused(handle, f"{body.who}: {body.reason}", is_paused=False)
    await actions.record_action_of_all_messages(
        call.services.database, "resume", ActorWithReason(body.who, body.reason)
    )
    call.request.app[CYCLE_TRIGGER].request_cycle()
    return await build_cycle_response(call, handle)
