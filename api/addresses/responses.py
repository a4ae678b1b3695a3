"""Responses about messages and cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from api.http.models import Response
from api.pauses import PauseResponse
from domain.addresses import messages
from domain.addresses.activity_models import CyclePhase
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind, WaitReason
from stores.addresses.cycle import UnfinishedMessageCounts
from stores.addresses.search import MessageRecord, OperatorAction
from stores.pauses import PauseRecord


class AddressPauseResponse(PauseResponse):
    """A pause that holds changes of addresses up."""

    of: Literal["system", "cycle", "module"] = Field(description="what is paused")
    module: Module | None = Field(description="which module, where one is paused")


class WhyMessageWaits(Response):
    """Why a message is not done."""

    kind: WaitKind | None
    module: Module | None = Field(description="the first module that caused it")
    modules: list[Module] = Field(description="all modules that caused it, where they are several")
    uprn: int | None = Field(description="for `missing`: the UPRN that has no address there")
    behind: int | None = Field(
        description="for `behind`: the message that must be done first; for `overtaken`: the later one that was applied"
    )
    missing: list[int] = Field(description="all UPRNs that a module misses")
    unsure: list[Module] = Field(description="modules that gave no answer, and may have applied it")
    paused: list[AddressPauseResponse] = Field(description="paused modules that it waits for: by whom and why")


class LastModuleAnswer(Response):
    """The last answer of a module."""

    ack: str | None = Field(description="`Y`: applied, `N`: not applied, null: not called yet, or no longer needed")
    at: AwareDatetime | None


class LastModuleAnswerWithTrace(LastModuleAnswer):
    """The last answer of a module, with the error."""

    trace: str | None


class MessageSummary(Response):
    """A message in a list."""

    message_id: int = Field(description="the order of receipt")
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
    next_attempt_at: AwareDatetime | None = Field(description="the earliest time of the next try")
    archived_at: AwareDatetime | None = Field(description="when it moved to the history")
    cycle_id: str | None = Field(description="the cycle that loaded it last")
    superseded_by: int | None = Field(description="the later message that superseded it")
    reason: str | None = Field(description="why it ended without success, or cannot succeed")
    waits: WhyMessageWaits | None = Field(description="why it is not done; for a skipped message, why it was not")
    acks: dict[Module, LastModuleAnswer]


class OperatorActionOnMessage(Response):
    """An action of an operator."""

    at: AwareDatetime
    who: str
    action: str
    reason: str | None


class MessageResponse(MessageSummary):
    """A message with all details."""

    payload: str = Field(description="the published text, unchanged")
    acks: dict[Module, LastModuleAnswerWithTrace]  # type: ignore[assignment] # lists omit the traces
    supersedes: list[int] = Field(description="earlier messages of its UPRN that it superseded, at most 1,000")
    actions: list[OperatorActionOnMessage] = Field(description="actions of operators, oldest first")


def build_message_summary(message: MessageRecord, retries: int, pauses: Mapping[Module, PauseRecord]) -> MessageSummary:
    acks = {module: LastModuleAnswer(ack=each.ack, at=each.at) for module, each in message.acks.items()}
    return MessageSummary(**_build_summary_fields(message, retries, pauses), acks=acks)


def build_message_response(
    message: MessageRecord,
    supersedes: list[int],
    actions: Sequence[OperatorAction],
    retries: int,
    pauses: Mapping[Module, PauseRecord],
) -> MessageResponse:
    acks = {
        module: LastModuleAnswerWithTrace(ack=each.ack, at=each.at, trace=each.trace)
        for module, each in message.acks.items()
    }
    return MessageResponse(
        **_build_summary_fields(message, retries, pauses),
        acks=acks,
        payload=message.payload or "",
        supersedes=supersedes,
        actions=[OperatorActionOnMessage.model_validate(each, from_attributes=True) for each in actions],
    )


def _build_summary_fields(message: MessageRecord, retries: int, pauses: Mapping[Module, PauseRecord]) -> dict[str, Any]:
    same = (
        *("topic", "msg_no", "event_id", "uprn_1", "uprn_2", "address_id", "retry_times", "created_at"),
        *("published_at", "changed_at", "next_attempt_at", "archived_at", "cycle_id", "superseded_by", "reason"),
    )
    state = messages.derive_message_state(
        proc_flag=message.proc_flag,
        topic=message.topic,
        is_due=message.next_attempt_at is not None,
        retry_times=message.retry_times,
        retries=retries,
        is_only_for_paused_modules=message.waits.is_only_for_paused_modules,
    )
    return {
        "message_id": message.id,
        **{name: getattr(message, name) for name in same},
        "state": state,
        "waits": _build_message_wait(message.waits, pauses),
    }


def _build_message_wait(waits: WaitReason, pauses: Mapping[Module, PauseRecord]) -> WhyMessageWaits | None:
    """Say why a message waits; a pause that has ended since the message was tried is not named any more."""
    paused = [build_module_pause(module, pauses[module]) for module in waits.paused if module in pauses]
    if waits.kind is None or (waits.kind is WaitKind.PAUSED and not paused):
        return None
    return WhyMessageWaits(**waits.model_dump(exclude={"inherits", "paused"}), paused=paused)


def build_module_pause(module: Module, pause: PauseRecord) -> AddressPauseResponse:
    return AddressPauseResponse(
        of="module", module=module, paused_at=pause.paused_at, who=pause.who, reason=pause.reason
    )


class RetryMessagesResponse(Response):
    """The numbers of matching messages."""

    retried: int
    busy: int = Field(description="matching messages left alone, because they are being processed")
    remaining: int = Field(description="matching messages beyond the limit: send the same request again")


class SkipMessagesResponse(Response):
    """The numbers of matching messages."""

    skipped: int
    busy: int = Field(description="matching messages left alone, because they are being processed")
    touched: int = Field(
        description="matching messages left alone, because a module has applied them, or may have: skip each by itself"
    )
    remaining: int = Field(description="matching messages beyond the limit: send the same request again")


class CountFailedResponse(Response):
    """The numbers of failed messages that match."""

    messages: int = Field(description="messages that a retry would retry")
    touched: int = Field(description="of these: applied by a module, or possibly, so that a skip leaves them alone")
    busy: int = Field(description="besides these: being processed now")


class UnfinishedCount(Response):
    """The messages of a topic in one state."""

    topic: Topic
    state: MessageState
    messages: int
    oldest_at: AwareDatetime | None = Field(description="when the oldest of them was received")
    oldest_seconds: float = Field(description="its age; 0 if there is none")
    failed_in: dict[Module, int] = Field(description="the number that failed in each module")


class UnfinishedCountsResponse(Response):
    """The numbers of unfinished messages."""

    at: AwareDatetime
    messages: list[UnfinishedCount] = Field(description="every topic in every state but `done`")
    quarantined: int = Field(description="messages that could not be read")
    logical_deletes: int = Field(description="addresses that modules keep because of orders in flight")
    removable: int = Field(description="of these: needed by no module any more")


def build_unfinished_counts(counts: UnfinishedMessageCounts) -> UnfinishedCountsResponse:
    return UnfinishedCountsResponse(
        at=counts.at,
        messages=[
            UnfinishedCount(
                topic=each.topic,
                state=each.state,
                messages=each.messages,
                oldest_at=each.oldest_at,
                oldest_seconds=counts.compute_age_of_oldest(each),
                failed_in=dict(each.failed_in),
            )
            for each in counts.counts
        ],
        quarantined=counts.quarantined,
        logical_deletes=counts.listed,
        removable=counts.removable,
    )


class CycleProgress(Response):
    """The progress of the current run."""

    phase: CyclePhase
    cycle_id: str = Field(description="the current cycle, as messages name it")
    started_at: AwareDatetime
    cycles: int = Field(description="completed cycles of this run")
    loaded: int
    done: int
    failed: int
    superseded: int


class CycleResponse(Response):
    """The state of the schedule of cycles."""

    is_paused: bool
    note: str = Field(description="who paused or resumed it, and why")
    workflow_ids: list[str] = Field(description="ids of its running workflows")
    next_runs: list[AwareDatetime] = Field(
        description="the next runs; none while it is paused, or waits for the first message"
    )
    progress: CycleProgress | None = Field(description="of the running workflow, if a worker answers")
    pauses: list[AddressPauseResponse] = Field(
        description="all that is paused of addresses: the system, the cycle, and modules"
    )
