"""History: which steps a run took, how often each was tried, and what went wrong, as people are told it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionDescription

from domain.faults import FaultRecord
from infra.interceptors import FAULT_TYPE

EVENTS_A_PAGE = 500
EVENTS_READ_MAX = 5_000
"""Of a run with more, only the newest are looked at."""


class StepState(StrEnum):
    """How a step stands."""

    RUNNING = "running"
    WAITING = "waiting"  # for a worker, or for its next attempt
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class Step:
    """One step of a run, with all its attempts."""

    activity: str
    summary: str
    scheduled_at: datetime
    state: StepState
    attempts: int = 1
    ended_at: datetime | None = None
    next_attempt_at: datetime | None = None
    fault: FaultRecord | None = None
    """Why the last attempt that failed did."""


@dataclass
class _Ends:
    """What later events said of the steps that earlier ones began; history is read backwards."""

    closed: dict[int, tuple[StepState, datetime, Failure | None]] = field(default_factory=dict)
    begun: dict[int, tuple[int, Failure | None]] = field(default_factory=dict)


_ENDS = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: (StepState.SUCCEEDED, "activity_task_completed_event_attributes"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: (StepState.FAILED, "activity_task_failed_event_attributes"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: (StepState.FAILED, "activity_task_timed_out_event_attributes"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: (StepState.CANCELLED, "activity_task_canceled_event_attributes"),
}


async def steps(client: Client, description: WorkflowExecutionDescription, limit: int) -> tuple[list[Step], bool]:
    """The newest steps of a run, newest first, and whether these are all."""
    pending = {each.activity_id: each for each in description.raw_description.pending_activities}
    ends, found, read, token = _Ends(), list[Step](), 0, b""
    while True:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=description.id, run_id=description.run_id),
            maximum_page_size=EVENTS_A_PAGE,
            next_page_token=token,
        )
        answer = await client.workflow_service.get_workflow_execution_history_reverse(request)
        for event in answer.history.events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                if len(found) == limit:
                    return found, False
                found.append(await _step(client, event, ends, pending))
            else:
                _note(event, ends)
        read, token = read + len(answer.history.events), answer.next_page_token
        if not token or read >= EVENTS_READ_MAX:
            return found, not token


def _note(event: HistoryEvent, ends: _Ends) -> None:
    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
        started = event.activity_task_started_event_attributes
        failure = started.last_failure if started.HasField("last_failure") else None
        ends.begun[started.scheduled_event_id] = (started.attempt, failure)
    elif event.event_type in _ENDS:
        state, name = _ENDS[event.event_type]
        attributes = getattr(event, name)
        ends.closed[attributes.scheduled_event_id] = (
            state,
            _moment(event.event_time),
            attributes.failure if state is StepState.FAILED else None,
        )


async def _step(client: Client, event: HistoryEvent, ends: _Ends, pending: dict[str, PendingActivityInfo]) -> Step:
    scheduled = event.activity_task_scheduled_event_attributes
    summary = ""
    if event.user_metadata.HasField("summary"):
        [summary] = await client.data_converter.decode([event.user_metadata.summary], [str])
    step = Step(scheduled.activity_type.name, summary, _moment(event.event_time), StepState.WAITING)
    if event.event_id in ends.closed:
        attempts, last = ends.begun.get(event.event_id, (1, None))
        step.state, step.ended_at, failure = ends.closed[event.event_id]
        step.attempts, step.fault = attempts, await _told(client, failure or last)
    elif scheduled.activity_id in pending:
        running = pending[scheduled.activity_id]
        is_running = running.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        step.state = StepState.RUNNING if is_running else StepState.WAITING
        step.attempts = running.attempt
        step.fault = await _told(client, running.last_failure if running.HasField("last_failure") else None)
        if not is_running and running.HasField("next_attempt_schedule_time"):
            step.next_attempt_at = _moment(running.next_attempt_schedule_time)
    return step


async def _told(client: Client, failure: Failure | None) -> FaultRecord | None:
    """What a user may read of a failure: a fault in full, of our own troubles only that there were some."""
    if failure is None:
        return None
    for each in _chain(failure):
        if each.application_failure_info.type == FAULT_TYPE:
            details = each.application_failure_info.details.payloads
            [fault] = await client.data_converter.decode(list(details), [FaultRecord])
            return FaultRecord.model_validate(fault)
    if failure.HasField("timeout_failure_info"):
        message = "The worker that did this step stopped answering, or took too long."
    else:
        message = "A part of ours failed at this step."
    return FaultRecord(code="internal", message=message, hint="It was tried again by itself.", retryable=True)


def _chain(failure: Failure) -> Iterator[Failure]:
    yield failure
    while failure.HasField("cause"):
        failure = failure.cause
        yield failure


def _moment(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
