"""What operators are told of messages, and how they say who they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import AwareDatetime, Field

from api.http.models import Request, Response
from domain.addresses import messages
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from stores.addresses.search import FoundMessage, OperatorAction

LARGEST = 2**63 - 1


_SEEN: Final = r"\S"
"""Blanks alone name nobody."""


class Signed(Request):
    """Who acts, and why: both are noted, because operators share one key."""

    who: str = Field(min_length=1, max_length=200, pattern=_SEEN, description="your name, as the audit is to tell it")
    reason: str = Field(min_length=3, max_length=500, pattern=_SEEN, description="why; noted beside your name")


class Wait(Response):
    """Why a message is not done."""

    kind: WaitKind | None
    module: Module | None = Field(description="the first module that said so")
    uprn: int | None = Field(description="of `missing`: the UPRN that has no address there")
    behind: int | None = Field(
        description="of `behind`: the message that must be done first; of `overtaken`: the one that was applied before"
    )
    missing: list[int] = Field(description="all UPRNs that some module misses")
    unsure: list[Module] = Field(description="modules that gave no answer, and may have applied it")


class Ack(Response):
    """What a module said last."""

    ack: str | None = Field(
        description="`Y` it has applied it, `N` it has not, null: it was not asked yet, or needs it no more"
    )
    at: AwareDatetime | None


class FullAck(Ack):
    """What a module said last, and what went wrong there."""

    trace: str | None


class ListedMessage(Response):
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
    waits: Wait | None = Field(description="why it is not done; of a skipped one, why it was not")
    acks: dict[Module, Ack]


class Action(Response):
    """What an operator did."""

    at: AwareDatetime
    who: str
    action: str
    reason: str | None


class ShownMessage(ListedMessage):
    """A message, with all that is known of it."""

    payload: str = Field(description="the very text that was published")
    acks: dict[Module, FullAck]  # type: ignore[assignment] # a list leaves the traces out
    supersedes: list[int] = Field(description="earlier messages of its UPRN that it made needless, at most 1,000")
    actions: list[Action] = Field(description="what operators did to it, in order")


def listed(message: FoundMessage, retries: int) -> ListedMessage:
    """A line of a list."""
    acks = {module: Ack(ack=each.ack, at=each.at) for module, each in message.acks.items()}
    return ListedMessage(**_known(message, retries), acks=acks)


def shown(
    message: FoundMessage, supersedes: list[int], actions: Sequence[OperatorAction], retries: int
) -> ShownMessage:
    """A whole message, what it stands for, and what was done to it."""
    acks = {module: FullAck(ack=each.ack, at=each.at, trace=each.trace) for module, each in message.acks.items()}
    return ShownMessage(
        **_known(message, retries),
        acks=acks,
        payload=message.payload or "",
        supersedes=supersedes,
        actions=[Action.model_validate(each, from_attributes=True) for each in actions],
    )


def _known(message: FoundMessage, retries: int) -> dict[str, Any]:
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
        "waits": Wait(**message.waits.model_dump(exclude={"inherits"})) if is_waiting else None,
    }
