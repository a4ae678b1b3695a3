"""Responses about messages and cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import AwareDatetime, Field

from api.http.models import Response
from domain.addresses import messages
from domain.addresses.activity_models import CyclePhase
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from stores.addresses.search import FoundMessage, OperatorAction
from stores.addresses.workload import UnfinishedCounts


class MessageWait(Response):
    """Why a message is not done."""

    kind: WaitKind | None
    module: Module | None = Field(description="the first module that said so")
    uprn: int | None = Field(description="of `missing`: the UPRN that has no address there")
    behind: int | None = Field(
        description="of `behind`: the message that must be done first; of `overtaken`: the one that was applied before"
    )
    missing: list[int] = Field(description="all UPRNs that some module misses")
    unsure: list[Module] = Field(description="modules that gave no answer, and may have applied it")


class Acknowledgement(Response):
    """What a module said last."""

    ack: str | None = Field(
        description="`Y` it has applied it, `N` it has not, null: it was not asked yet, or needs it no more"
    )
    at: AwareDatetime | None


class AcknowledgementDetails(Acknowledgement):
    """What a module said last, and what went wrong there."""

    trace: str | None


class MessageSummary(Response):
    """A message, as lists show it."""

    id: int = Field(description="the order of receipt")
    topic: Topic
    msg_no: str
    event_id: str | None
    uprn_1: int
    uprn_2: int | None
    address_id: int | None
    state: MessageState
    retry_times: int = Field(description="failed cycles")
    created_at: AwareDatetime
    published_at: AwareDatetime | None
    changed_at: AwareDatetime | None = Field(description="when a cycle or an operator changed its state")
    next_attempt_at: AwareDatetime | None = Field(description="it is not tried again before")
    archived_at: AwareDatetime | None = Field(description="when it went to the history")
    cycle_id: str | None = Field(description="the cycle that took it last")
    superseded_by: int | None = Field(description="the later message that made it needless")
    reason: str | None = Field(description="why it ended without success, or what it lacks for good")
    waits: MessageWait | None = Field(description="why it is not done; of a skipped one, why it was not")
    acks: dict[Module, Acknowledgement]


class MessageAction(Response):
    """What an operator did."""

    at: AwareDatetime
    who: str
    action: str
    reason: str | None


class MessageResponse(MessageSummary):
    """A message, with all that is known of it."""

    payload: str = Field(description="the very text that was published")
    acks: dict[Module, AcknowledgementDetails]  # type: ignore[assignment] # a list leaves the traces out
    supersedes: list[int] = Field(description="earlier messages of its UPRN that it made needless, at most 1,000")
    actions: list[MessageAction] = Field(description="what operators did to it, in order")


def summarize_message(message: FoundMessage, retries: int) -> MessageSummary:
    """A line of a list."""
    acks = {module: Acknowledgement(ack=each.ack, at=each.at) for module, each in message.acks.items()}
    return MessageSummary(**_copy_fields(message, retries), acks=acks)


def describe_message(
    message: FoundMessage, supersedes: list[int], actions: Sequence[OperatorAction], retries: int
) -> MessageResponse:
    """A whole message, what it stands for, and what was done to it."""
    acks = {
        module: AcknowledgementDetails(ack=each.ack, at=each.at, trace=each.trace)
        for module, each in message.acks.items()
    }
    return MessageResponse(
        **_copy_fields(message, retries),
        acks=acks,
        payload=message.payload or "",
        supersedes=supersedes,
        actions=[MessageAction.model_validate(each, from_attributes=True) for each in actions],
    )


def _copy_fields(message: FoundMessage, retries: int) -> dict[str, Any]:
    same = (
        *("id", "topic", "msg_no", "event_id", "uprn_1", "uprn_2", "address_id", "retry_times", "created_at"),
        *("published_at", "changed_at", "next_attempt_at", "archived_at", "cycle_id", "superseded_by", "reason"),
    )
    state = messages.derive_state(
        proc_flag=message.proc_flag,
        topic=message.topic,
        is_due=message.next_attempt_at is not None,
        retry_times=message.retry_times,
        retries=retries,
    )
    is_waiting = message.waits.kind is not None
    return {
        **{name: getattr(message, name) for name in same},
        "state": state,
        "waits": MessageWait(**message.waits.model_dump(exclude={"inherits"})) if is_waiting else None,
    }


class RetryMessagesResponse(Response):
    """How many are tried again."""

    retried: int
    busy: int = Field(description="match, and are being processed at this moment: they were left alone")
    left: int = Field(description="match, and were too many for one time: send the same again")


class SkipMessagesResponse(Response):
    """How many are skipped."""

    skipped: int
    busy: int = Field(description="match, and are being processed at this moment: they were left alone")
    touched: int = Field(description="match, but a module has applied them, or may have: skip each of them by itself")
    left: int = Field(description="match, and were too many for one time: send the same again")


class CountFailedResponse(Response):
    """How many failed messages match."""

    messages: int = Field(description="so many a retry would try again")
    touched: int = Field(description="of these: a module has applied them, or may have, so that a skip leaves them")
    busy: int = Field(description="beside these: being processed at this moment")


class MessageFigure(Response):
    """The messages of a topic in one state."""

    topic: Topic
    state: MessageState
    messages: int
    oldest_at: AwareDatetime | None = Field(description="when the oldest of them was received")
    oldest_seconds: float = Field(description="how long ago that is; 0 where there is none")
    failed_in: dict[Module, int] = Field(description="how many of them failed in each module")


class FiguresResponse(Response):
    """What is not done."""

    at: AwareDatetime
    messages: list[MessageFigure] = Field(description="every topic in every state but `done`")
    quarantined: int = Field(description="messages that could not be read")
    logical_deletes: int = Field(description="addresses that modules keep because of orders in flight")
    removable: int = Field(description="of them those that no module needs any more")


def build_figures(counts: UnfinishedCounts) -> FiguresResponse:
    return FiguresResponse(
        at=counts.at,
        messages=[
            MessageFigure(
                topic=each.topic,
                state=each.state,
                messages=each.messages,
                oldest_at=each.oldest_at,
                oldest_seconds=counts.oldest_seconds(each),
                failed_in=dict(each.failed_in),
            )
            for each in counts.counts
        ],
        quarantined=counts.quarantined,
        logical_deletes=counts.listed,
        removable=counts.removable,
    )


class CycleProgress(Response):
    """How far the run is that is under way."""

    phase: CyclePhase
    cycle_id: str = Field(description="the cycle that it is at, as messages name it")
    started_at: AwareDatetime
    cycles: int = Field(description="cycles that this run has brought to their end")
    loaded: int
    done: int
    failed: int
    superseded: int


class CycleResponse(Response):
    """How the schedule of cycles stands."""

    paused: bool
    note: str = Field(description="who paused or resumed it, and why")
    running: list[str] = Field(description="ids of the workflows that it has started and that have not ended")
    next_runs: list[AwareDatetime] = Field(description="when it begins next; none while it is paused")
    progress: CycleProgress | None = Field(description="of what is running, as far as a worker answers")
