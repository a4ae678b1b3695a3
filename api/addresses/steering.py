"""Steering: failed messages are tried again, one or many, or given up with a reason."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from api.addresses import messages
from api.addresses.answers import LARGEST, ShownMessage, Signed
from api.addresses.messages import MessagePath
from api.addresses.room import WAKER, in_force, routes
from api.http import timestamps
from api.http.models import Request, Response
from api.http.routes import Access, Call
from api.http.timestamps import BodyTimestamp, QueryTimestamp
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from domain.faults import Conflict, Missing
from stores.addresses import actions
from stores.addresses.actions import RETRIED_MAX, Actor
from stores.addresses.search import MessageFilter

MessageId = Annotated[int, Field(ge=1, le=LARGEST)]
_PROBLEMS = {"not_found": Missing, "message_done": Conflict, "message_being_processed": Conflict}


class Skip(Signed):
    """Why a message is skipped."""

    though_touched: bool = Field(
        default=False, description="also if modules have applied it, or may have; they differ from the others then"
    )


class Chosen(Request):
    """Which failed messages are meant; nothing named means all of them."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=LARGEST, description="either UPRN of the message")
    state: Literal[MessageState.FAILED, MessageState.GIVEN_UP] | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are not done for this reason")

    def filter(self, retries: int) -> MessageFilter:
        """What is looked for, where messages are given up after so many failed cycles."""
        named = self.model_dump(exclude={"state", "who", "reason", "limit"})
        return MessageFilter(
            **named,
            retries_from=retries if self.state is MessageState.GIVEN_UP else None,
            retries_below=retries if self.state is MessageState.FAILED else None,
        )


class Asked(Chosen):
    """Which failed messages are counted; nothing named means all of them."""

    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


class Many(Chosen, Signed):
    """Which failed messages are tried again; nothing named means all of them."""

    ids: list[MessageId] | None = Field(
        default=None, min_length=1, max_length=RETRIED_MAX, description="of these only, whatever else is named"
    )
    created_after: BodyTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: BodyTimestamp | None = Field(default=None, description="received before this time")
    limit: int = Field(default=RETRIED_MAX, ge=1, le=RETRIED_MAX, description="how many at most, the oldest first")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


class Retried(Response):
    """How many are tried again."""

    retried: int
    busy: int = Field(description="match, and are being processed at this moment: they were left alone")
    left: int = Field(description="match, and were too many for one time: send the same again")


class Skipped(Response):
    """How many are skipped."""

    skipped: int
    busy: int = Field(description="match, and are being processed at this moment: they were left alone")
    touched: int = Field(description="match, but a module has applied them, or may have: skip each of them by itself")
    left: int = Field(description="match, and were too many for one time: send the same again")


class Counted(Response):
    """How many failed messages match."""

    messages: int = Field(description="so many a retry would try again")
    touched: int = Field(description="of these: a module has applied them, or may have, so that a skip leaves them")
    busy: int = Field(description="beside these: being processed at this moment")


@routes.post(
    "/v1/addresses/messages/{message_id}/retry",
    access=Access.ADMIN,
    problems={**_PROBLEMS, "message_not_failed": Conflict},
)
async def retry(call: Call, path: MessagePath, body: Signed) -> ShownMessage:
    """Have a failed message tried again, as if it had never failed.

    Modules that have it are not asked again, and a module that has something younger of its UPRN says so: then it ends
    as superseded.
    """
    done = await actions.retry_message(call.services.database, path.message_id, Actor(body.who, body.reason))
    message = await messages.shown(call, path.message_id)
    if not done:
        raise _not_retried(message)
    call.request.app[WAKER].wake()
    return message


@routes.post(
    "/v1/addresses/messages/{message_id}/retry-chain",
    access=Access.ADMIN,
    problems={**_PROBLEMS, "message_not_failed": Conflict},
)
async def retry_chain(call: Call, path: MessagePath, body: Signed) -> Retried:
    """Have a failed message tried again, and all failed ones that its addresses link to it.

    Linked are two messages that name a common UPRN, and whatever is linked to either. They are tried in the order in
    which they were received, so that none overtakes an earlier one.
    """
    outcome = await actions.retry_chain(call.services.database, path.message_id, Actor(body.who, body.reason))
    if not outcome.changed:
        raise _not_retried(await messages.shown(call, path.message_id))
    call.request.app[WAKER].wake()
    return Retried(retried=outcome.changed, busy=outcome.busy, left=outcome.left)


@routes.post("/v1/addresses/messages/retry", access=Access.ADMIN)
async def retry_many(call: Call, body: Many) -> Retried:
    """Have all failed messages that match tried again, and say how many that are."""
    by = Actor(body.who, body.reason)
    outcome = await actions.retry_messages(call.services.database, await _filter(call, body), body.limit, by)
    if outcome.changed:
        call.request.app[WAKER].wake()
    return Retried(retried=outcome.changed, busy=outcome.busy, left=outcome.left)


@routes.post("/v1/addresses/messages/skip", access=Access.ADMIN)
async def skip_many(call: Call, body: Many) -> Skipped:
    """Give up for good all failed messages that match, and say how many that are.

    Those that are named by `ids` need not have failed. What a module has applied, or may have, is left alone: skip each
    of these by itself, with `though_touched`.
    """
    by = Actor(body.who, body.reason)
    outcome = await actions.skip_messages(call.services.database, await _filter(call, body), body.limit, by)
    if outcome.changed:
        # What queued behind them may go on.
        call.request.app[WAKER].wake()
    return Skipped(skipped=outcome.changed, busy=outcome.busy, touched=outcome.touched, left=outcome.left)


@routes.get("/v1/addresses/messages/failed", access=Access.ADMIN)
async def count_failed(call: Call, query: Asked) -> Counted:
    """Count the failed messages that match: so many would be tried again, or skipped."""
    found = await actions.count_failed(call.services.database, await _filter(call, query))
    return Counted(messages=found.free, touched=found.touched, busy=found.busy)


@routes.post(
    "/v1/addresses/messages/{message_id}/skip",
    access=Access.ADMIN,
    problems={**_PROBLEMS, "message_touched": Conflict},
)
async def skip(call: Call, path: MessagePath, body: Skip) -> ShownMessage:
    """Give a message up for good: no module is asked about it any more.

    One that a module has applied already, or may have, is skipped only with `though_touched`.
    """
    by = Actor(body.who, body.reason)
    done = await actions.skip_message(call.services.database, path.message_id, by, though_touched=body.though_touched)
    message = await messages.shown(call, path.message_id)
    if not done:
        raise _not_skipped(message)
    # What queued behind it may go on.
    call.request.app[WAKER].wake()
    return message


def _not_retried(message: ShownMessage) -> Conflict:
    if message.state is MessageState.WAITING:
        return Conflict(
            "message_not_failed",
            f"Message {message.id} has not been tried yet.",
            "The next cycle takes it by itself; if none runs, see GET /v1/addresses/cycle.",
        )
    return _not_free(message)


async def _filter(call: Call, chosen: Chosen) -> MessageFilter:
    return chosen.filter((await in_force(call)).retries)


def _not_skipped(message: ShownMessage) -> Conflict:
    if message.state in (MessageState.DONE, MessageState.PROCESSING):
        return _not_free(message)
    have = [module for module, ack in message.acks.items() if ack.ack == "Y"]
    unsure = [module for module in (message.waits.unsure if message.waits else ()) if module not in have]
    said = [
        sentence
        for modules, sentence in (
            (have, f"has been applied by {', '.join(have)}"),
            (unsure, f"may have been applied by {', '.join(unsure)}"),
        )
        if modules
    ]
    return Conflict(
        "message_touched",
        f"Message {message.id} {' and '.join(said) or 'stands for a superseded one that a module may have applied'}: "
        "skipped now, the modules would differ.",
        "Retry it, or send though_touched: true and mend the modules yourself.",
    )


def _not_free(message: ShownMessage) -> Conflict:
    if message.state is MessageState.DONE:
        return Conflict(
            "message_done", f"Message {message.id} is done.", "Only what is not done can be retried or skipped."
        )
    return Conflict(
        "message_being_processed",
        f"Message {message.id} is being processed now.",
        "Ask again when its cycle has ended; GET /v1/addresses/messages/… tells its state.",
    )
