"""Responses of addresses. Fields that a newer API adds are ignored, so older clients keep working."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from haulage.enums import ExtensibleEnum
from haulage.models import Fault


class Topic(ExtensibleEnum):
    """Topic of a message."""

    SWAP = "swapDeleteInfinityAddress"
    CREATE_UPDATE = "createUpdateInfinityAddress"
    DELETE = "deleteInfinityAddress"


class Module(ExtensibleEnum):
    """A module that keeps addresses."""

    ED = "ed"
    IM = "im"
    WFM = "wfm"
    OD = "od"


class MessageState(StrEnum):
    """State of a message."""

    WAITING = "waiting"
    PROCESSING = "processing"
    FAILED = "failed"
    """A later cycle retries it."""
    GIVEN_UP = "given_up"
    """It used up its retries: retry or skip it."""
    DONE = "done"

    @property
    def final(self) -> bool:
        """Whether no cycle will change it."""
        return self in (MessageState.GIVEN_UP, MessageState.DONE)


class WaitKind(ExtensibleEnum):
    """Why a message is not done."""

    MISSING = "missing"
    """A module misses an address that it names."""
    BEHIND = "behind"
    """It waits for another message."""
    REFUSED = "refused"
    """A module refuses it."""
    FAILED = "failed"
    """A module gave no answer."""
    OVERTAKEN = "overtaken"
    """A later swap of one of its addresses was applied."""
    PAUSED = "paused"
    """A module is paused."""


class AddressPause(BaseModel):
    """A pause that holds changes of addresses up."""

    of: str
    """What is paused: `system`, `cycle` or `module`."""
    module: Module | None = None
    paused_at: datetime | None = None
    """None where it is not known."""
    who: str
    reason: str

    def __str__(self) -> str:
        subject = (
            f"Module {self.module} is" if self.module else "Addresses are" if self.of == "system" else "Cycles are"
        )
        since = f" since {self.paused_at.isoformat(timespec='seconds')}" if self.paused_at else ""
        return f"{subject} paused{since} by {self.who}: {self.reason.rstrip('.')}."


class WhyMessageWaits(BaseModel):
    """Why a message is not done."""

    kind: WaitKind | None = None
    module: Module | None = None
    """The first module that caused it."""
    modules: Sequence[Module] = ()
    """All modules that caused it, where they are several."""
    uprn: int | None = None
    """For `missing`: the UPRN."""
    behind: int | None = None
    """For `behind` and `overtaken`: the id of the other message."""
    missing: Sequence[int] = ()
    unsure: Sequence[Module] = ()
    """Modules that gave no answer, and may have applied it."""
    paused: Sequence[AddressPause] = ()
    """Paused modules that it waits for."""


class LastModuleAnswer(BaseModel):
    """The last answer of a module."""

    ack: str | None = None
    """`Y`: applied, `N`: not applied; None: not called yet, or no longer needed."""
    at: datetime | None = None
    trace: str | None = None
    """The error; lists omit it."""


class MessageWithModuleAnswers(BaseModel):
    """A change message, as of one response."""

    message_id: int
    """The order of receipt."""
    topic: Topic
    msg_no: str
    """The id that Pub/Sub gave it."""
    event_id: str | None = None
    uprn_1: int
    uprn_2: int | None = None
    address_id: int | None = None
    state: MessageState
    retry_times: int = 0
    """Cycles in which it failed."""
    created_at: datetime
    published_at: datetime | None = None
    changed_at: datetime | None = None
    next_attempt_at: datetime | None = None
    archived_at: datetime | None = None
    """When it moved to the history."""
    cycle_id: str | None = None
    superseded_by: int | None = None
    reason: str | None = None
    """Why it ended without success, or cannot succeed."""
    waits: WhyMessageWaits | None = None
    acks: Mapping[Module, LastModuleAnswer]


class OperatorActionOnMessage(BaseModel):
    """What an operator did with a message."""

    at: datetime
    who: str
    action: str
    reason: str | None = None


class MessageDetails(MessageWithModuleAnswers):
    """A message with its text, the errors of modules, and the actions of operators."""

    payload: str
    supersedes: Sequence[int] = ()
    actions: Sequence[OperatorActionOnMessage] = ()


class MessageCount(BaseModel):
    """The messages of a topic in one state."""

    topic: Topic
    state: MessageState
    messages: int
    oldest_at: datetime | None = None
    oldest_seconds: float = 0.0
    failed_in: Mapping[Module, int]
    """How many failed in each module."""


class UnfinishedCounts(BaseModel):
    """The numbers of messages that are not done."""

    at: datetime
    messages: Sequence[MessageCount]
    quarantined: int
    """Messages that could not be read."""
    logical_deletes: int
    """Deleted addresses that modules keep because of orders in flight."""
    removable: int
    """Of these: needed by no module any more."""

    @property
    def unfinished(self) -> int:
        """Number of messages that cycles still work on."""
        return sum(each.messages for each in self.messages if not each.state.final)

    @property
    def needing_operator(self) -> int:
        """Number of messages that were given up: an operator retries or skips them."""
        return sum(each.messages for each in self.messages if each.state is MessageState.GIVEN_UP)


class PublishedMessagesOutcomeCounts(BaseModel):
    """How far published messages are."""

    total: int
    done: int
    """In all modules, superseded or skipped."""
    given_up: int
    """These need an operator."""
    quarantined: int
    """These could not be read."""
    messages: Sequence[MessageWithModuleAnswers] = ()
    """Those of them that are in the log or its history."""

    @property
    def ended(self) -> int:
        """Number of messages that no cycle will change."""
        return self.done + self.given_up + self.quarantined


class CycleProgress(BaseModel):
    """The progress of the running cycle."""

    phase: str
    cycle_id: str
    started_at: datetime
    cycles: int
    """Completed cycles of this run."""
    loaded: int
    done: int
    failed: int
    superseded: int


class CycleScheduleStatus(BaseModel):
    """Whether cycles run."""

    is_paused: bool
    note: str
    """Who paused or resumed them, and why."""
    workflow_ids: Sequence[str]
    """Of its running workflows."""
    next_runs: Sequence[datetime]
    progress: CycleProgress | None = None
    pauses: Sequence[AddressPause] = ()
    """All that is paused of addresses: the system, the cycle, and modules."""


class RetryCounts(BaseModel):
    """How many messages a retry changed."""

    retried: int
    busy: int
    """Left alone, because a cycle is processing them."""
    remaining: int
    """Beyond the limit: send the same request again."""


class FailedCount(BaseModel):
    """How many failed messages match."""

    messages: int
    touched: int
    """Of these: a module has applied them, or may have, so that a skip leaves them."""
    busy: int
    """Besides these: being processed now."""


class SkipCounts(BaseModel):
    """How many messages a skip changed."""

    skipped: int
    busy: int
    """Left alone, because a cycle is processing them."""
    touched: int
    """Left alone, because a module has applied them, or may have."""
    remaining: int
    """Beyond the limit: send the same request again."""


class QuarantinedMessage(BaseModel):
    """A message that could not be read."""

    quarantine_id: int
    topic: str
    msg_no: str
    reason: str
    """Why it could not be read."""
    raw_bytes: int
    created_at: datetime
    published_at: datetime | None = None
    mended_at: datetime | None = None
    mended_by: str | None = None
    mended_as: int | None = None
    """The message that the corrected text became."""


class LogicalDelete(BaseModel):
    """A deleted address that modules keep because of orders in flight."""

    address_id: int
    uprn: int
    message_id: int
    """The message that deleted it."""
    needed_by: Sequence[Module]
    """Modules with orders in flight, by their last answer."""
    created_at: datetime
    checked_at: datetime | None = None
    removable_at: datetime | None = None
    purged_at: datetime | None = None


class PurgeOrComparisonState(StrEnum):
    """State of a purge or of a comparison."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class PurgeProgressAndResults(BaseModel):
    """A purge, and the outcome of each address."""

    purge_id: str
    state: PurgeOrComparisonState
    purged: Sequence[int] = ()
    in_use: Sequence[int] = ()
    """A module has orders in flight."""
    superseded: Sequence[int] = ()
    """Created or deleted again meanwhile."""
    failed: Sequence[int] = ()
    """A module gave no answer, or refused: purge them again."""


class ComparisonCounts(BaseModel):
    """The result of a comparison of the modules."""

    made_at: datetime
    compared: int
    """UPRNs that at least one module has."""
    uprns_by_module: Mapping[Module, int]
    """UPRNs that each module has."""
    different: int
    presence_differs: int
    """Of these: only some modules have the UPRN."""
    address_id_differs: int
    """Of these: it has different addresses."""
    record_differs: int
    """Of these: the records differ."""
    in_workbook: int
    """Differences in the workbook."""
    with_unfinished_message: int
    """Of the differences in the workbook: those with an unfinished message."""
    url: str
    """A link to the workbook, valid for 15 minutes."""


class Comparison(BaseModel):
    """A comparison of the four modules."""

    comparison_id: str
    """The time at which it was requested."""
    state: PurgeOrComparisonState
    fault: Fault | None = None
    """Why it failed."""
    found: ComparisonCounts | None = None


def build_filters(**conditions: Any) -> dict[str, str]:
    """Return the conditions that are set, as they are sent in a query."""
    return {name: _format_query_value(value) for name, value in conditions.items() if value is not None}


def _format_query_value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
