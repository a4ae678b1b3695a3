"""History: the activities of a workflow run, the attempts of each, and why the last one failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionDescription

from domain.faults import FaultRecord
from infra.interceptors import FAULT_TYPE
from infra.payloads import PayloadDamaged, PayloadKeyMissing

T = TypeVar("T")

EVENTS_A_PAGE = 500
EVENTS_READ_MAX = 5_000
"""Of a longer history only the newest events are read."""


class ActivityState(StrEnum):
    """The state of an activity in history."""

    RUNNING = "running"
    WAITING = "waiting"  # for a worker, or for its next attempt
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class ActivityWithAttemptCount:
    """An activity of a run, with all its attempts."""

    activity: str
    summary: str
    scheduled_at: datetime
    state: ActivityState
    attempts: int = 1
    ended_at: datetime | None = None
    next_attempt_at: datetime | None = None
    fault: FaultRecord | None = None
    """Why the last failed attempt failed."""
    result: Sequence[Payload] = ()
    """What it returned, encoded, if it succeeded."""


@dataclass
class _OutcomesFromLaterEvents:
    """What later events say of activities that earlier events scheduled; history is read backwards."""

    ended: dict[int, tuple[ActivityState, datetime, Failure | None]] = field(default_factory=dict)
    started: dict[int, tuple[int, Failure | None]] = field(default_factory=dict)
    results: dict[int, Sequence[Payload]] = field(default_factory=dict)


_FINAL_EVENTS = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: (ActivityState.SUCCEEDED, "activity_task_completed_event_attributes"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: (ActivityState.FAILED, "activity_task_failed_event_attributes"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: (ActivityState.FAILED, "activity_task_timed_out_event_attributes"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: (ActivityState.CANCELLED, "activity_task_canceled_event_attributes"),
}


async def list_newest_activities_and_completeness(
    engine: Client, description: WorkflowExecutionDescription, limit: int
) -> tuple[list[ActivityWithAttemptCount], bool]:
    """Return the newest activities of a run, newest first, and whether these are all."""
    pending = {each.activity_id: each for each in description.raw_description.pending_activities}
    later, found, read, token = _OutcomesFromLaterEvents(), list[ActivityWithAttemptCount](), 0, b""
    while True:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=engine.namespace,
            execution=WorkflowExecution(workflow_id=description.id, run_id=description.run_id),
            maximum_page_size=EVENTS_A_PAGE,
            next_page_token=token,
        )
        answer = await engine.workflow_service.get_workflow_execution_history_reverse(request)
        for event in answer.history.events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                if len(found) == limit:
                    return found, False
                found.append(await _build_activity_record(engine, event, later, pending))
            else:
                _record_outcome_event(event, later)
        read, token = read + len(answer.history.events), answer.next_page_token
        if not token or read >= EVENTS_READ_MAX:
            return found, not token


def _record_outcome_event(event: HistoryEvent, later: _OutcomesFromLaterEvents) -> None:
    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
        started = event.activity_task_started_event_attributes
        failure = started.last_failure if started.HasField("last_failure") else None
        later.started[started.scheduled_event_id] = (started.attempt, failure)
    elif event.event_type in _FINAL_EVENTS:
        state, name = _FINAL_EVENTS[event.event_type]
        attributes = getattr(event, name)
        later.ended[attributes.scheduled_event_id] = (
            state,
            _to_datetime(event.event_time),
            attributes.failure if state is ActivityState.FAILED else None,
        )
        if state is ActivityState.SUCCEEDED:
            later.results[attributes.scheduled_event_id] = attributes.result.payloads


async def _build_activity_record(
    engine: Client, event: HistoryEvent, later: _OutcomesFromLaterEvents, pending: dict[str, PendingActivityInfo]
) -> ActivityWithAttemptCount:
    scheduled = event.activity_task_scheduled_event_attributes
    summary = ""
    if event.user_metadata.HasField("summary"):
        summary = await decode_unless_key_missing(engine, [event.user_metadata.summary], str) or ""
    record = ActivityWithAttemptCount(
        scheduled.activity_type.name, summary, _to_datetime(event.event_time), ActivityState.WAITING
    )
    if event.event_id in later.ended:
        attempts, last = later.started.get(event.event_id, (1, None))
        record.state, record.ended_at, failure = later.ended[event.event_id]
        record.attempts, record.fault = attempts, await _to_fault_visible_to_users(engine, failure or last)
        record.result = later.results.get(event.event_id, ())
    elif scheduled.activity_id in pending:
        running = pending[scheduled.activity_id]
        is_running = running.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        record.state = ActivityState.RUNNING if is_running else ActivityState.WAITING
        record.attempts = running.attempt
        record.fault = await _to_fault_visible_to_users(
            engine, running.last_failure if running.HasField("last_failure") else None
        )
        if not is_running and running.HasField("next_attempt_schedule_time"):
            record.next_attempt_at = _to_datetime(running.next_attempt_schedule_time)
    return record


async def _to_fault_visible_to_users(engine: Client, failure: Failure | None) -> FaultRecord | None:
    """Return what a user may see of a failure: a fault in full, of any other error only that there was one."""
    if failure is None:
        return None
    for each in _iterate_causes(failure):
        if each.application_failure_info.type == FAULT_TYPE:
            return await decode_unless_key_missing(engine, each.application_failure_info.details.payloads, FaultRecord)
    if failure.HasField("timeout_failure_info"):
        message = "The worker that ran this activity stopped answering, or took too long."
    else:
        message = "A component failed during this activity."
    return FaultRecord(code="internal_error", message=message, hint="It was retried automatically.", retryable=True)


async def decode_unless_key_missing(engine: Client, payloads: Sequence[Payload], kind: type[T]) -> T | None:
    """Decode one value; None where it was encrypted with a key that has been removed, or damaged since."""
    try:
        [value] = await engine.data_converter.decode(list(payloads), [kind])
    except (PayloadKeyMissing, PayloadDamaged):
        return None
    decoded: T = value
    return decoded


def _iterate_causes(failure: Failure) -> Iterator[Failure]:
    yield failure
    while failure.HasField("cause"):
        failure = failure.cause
        yield failure


def _to_datetime(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
