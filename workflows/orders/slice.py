"""The workflow of a slice: attempts with pauses between them, until the orders are committed or the slice has failed.

A slice that is too large replaces itself by its halves, which the cycle reads like any other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as EngineTimeout

with workflow.unsafe.imports_passed_through():
    from activities.orders.activities import OrderActivities, PlatformActivities
    from activities.orders.slice_attempts import FAILURE_TYPE, TIMEOUT_HINT
    from domain.faults import FaultRecord
    from domain.orders import names
    from domain.orders.activity_models import (
        FailSliceInput,
        PlatformFaultInput,
        PlatformInput,
        ReadSliceInput,
        ReadSliceResult,
        SliceInput,
        SliceResult,
        SliceStatus,
        SliceWorkflowState,
    )
    from domain.orders.config import PlatformSettings
    from domain.orders.slices import (
        SliceAttemptFailure,
        SliceFailureKind,
        SliceReadOutcome,
        SliceReadPurpose,
        SliceResumePoint,
        SliceRetryState,
    )
    from domain.orders.windows import LiveOrHistory
    from infra import temporal
    from workflows.activity_calls import HEARTBEAT, ONCE, SHORT_ACTIVITY, build_fault
    from workflows.orders import alarms
    from workflows.run_length import is_run_long

_PRIORITIES = {(SliceReadPurpose.FIRST, LiveOrHistory.LIVE): 2, (SliceReadPurpose.FIRST, LiveOrHistory.HISTORY): 3}
_READ_AGAIN = 4


@workflow.defn(name=names.SLICE_WORKFLOW)
class OrderSliceWorkflow:
    """Reads one window of one platform until it is confirmed."""

    @workflow.init
    def __init__(self, params: SliceInput) -> None:
        before = params.so_far or SliceWorkflowState(attempt=0, ladder=SliceRetryState(), resume_point=None)
        self._params = params
        self._attempt = before.attempt
        self._ladder = before.ladder
        self._resume_point = before.resume_point
        self._state = "running"
        self._status = SliceStatus(purpose=params.job.purpose)
        self._is_pause_ended = False

    @workflow.run
    async def run(self, params: SliceInput) -> SliceResult:
        """Make attempts until the slice is read, or has failed."""
        while True:
            settings, began = await self._load_settings(), workflow.now()
            try:
                return self._show_end_and_build_slice_result(await self._run_attempt_activity(settings))
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                failure = self._convert_to_attempt_failure(error)
            self._resume_point = failure.resume_point
            if failure.kind is SliceFailureKind.EXPIRED:
                await self._record_refused_credentials_and_send_alarms(failure.fault, began)
            pause = self._ladder.record_failure_and_compute_pause(failure, settings.retries, settings.retryintv)
            self._set_status_and_show_in_web_ui("failed" if pause is None else "pausing", pause, failure.fault)
            if pause is None:
                return await self._record_failure_and_send_alarms(failure.fault)
            if pause:
                await self._wait_for_next_attempt(pause)
            if is_run_long():
                so_far = SliceWorkflowState(attempt=self._attempt, ladder=self._ladder, resume_point=self._resume_point)
                workflow.continue_as_new(params.model_copy(update={"so_far": so_far}))

    @workflow.query
    def status(self) -> SliceStatus:
        """Return the status of the slice."""
        return self._status

    @workflow.signal(name=names.END_PAUSE)
    def end_pause(self) -> None:
        """Make the next attempt without a pause, or end the pause that goes on."""
        self._is_pause_ended = True

    async def _wait_for_next_attempt(self, pause: float) -> None:
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(lambda: self._is_pause_ended, timeout=pause)
        self._is_pause_ended = False

    async def _load_settings(self) -> PlatformSettings:
        """Load the settings in force, as a local activity, which costs the engine one task less."""
        return await workflow.execute_local_activity_method(
            OrderActivities.load_settings,
            PlatformInput(platform=self._params.platform),
            **SHORT_ACTIVITY,
        )

    async def _run_attempt_activity(self, settings: PlatformSettings) -> ReadSliceResult:
        self._attempt += 1
        job = self._params.job
        info = workflow.info()
        self._set_status_and_show_in_web_ui("running", None, self._status.fault)
        return await workflow.execute_activity_method(
            PlatformActivities.read_and_commit_slice,
            ReadSliceInput(
                platform=self._params.platform,
                window=job.window,
                purpose=job.purpose,
                settings=settings,
                resume_point=self._resume_point,
                holder=f"{info.workflow_id}/{info.run_id}-{self._attempt}",
                further=job.further,
            ),
            task_queue=names.build_slice_queue_name(self._params.platform),
            # Further slices are begun within half of the time.
            start_to_close_timeout=timedelta(seconds=settings.timeout * (2 if job.further else 1)),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=ONCE,
            priority=Priority(priority_key=_PRIORITIES.get((job.purpose, job.track), _READ_AGAIN)),
            summary=f"attempt {self._attempt}, by configuration {settings.version}",
        )

    async def _record_refused_credentials_and_send_alarms(self, fault: FaultRecord, asked_at: datetime) -> None:
        result = await workflow.execute_activity_method(
            OrderActivities.record_refused_credentials,
            PlatformFaultInput(platform=self._params.platform, fault=fault, asked_at=asked_at),
            **SHORT_ACTIVITY,
        )
        await alarms.start_alarm_deliveries(result.alarms)

    async def _record_failure_and_send_alarms(self, fault: FaultRecord) -> SliceResult:
        result = await workflow.execute_activity_method(
            OrderActivities.record_failed_slice_or_sweep,
            FailSliceInput(
                reader=workflow.info().workflow_id,
                platform=self._params.platform,
                window=self._params.job.window,
                purpose=self._params.job.purpose,
                fault=fault,
                attempts=self._attempt,
            ),
            **SHORT_ACTIVITY,
        )
        await alarms.start_alarm_deliveries(result.alarms)
        return SliceResult(done=False, fault=fault)

    def _convert_to_attempt_failure(self, error: ActivityError) -> SliceAttemptFailure:
        """Return what a failed attempt means; one that was lost has the resume point of its last heartbeat, if any."""
        cause, resume_point = error.cause, self._resume_point
        if isinstance(cause, EngineTimeout) and cause.last_heartbeat_details:
            resume_point = SliceResumePoint.model_validate(cause.last_heartbeat_details[0])
        if isinstance(cause, ApplicationError) and cause.type == FAILURE_TYPE:
            result = SliceAttemptFailure.model_validate(cause.details[0])
            is_without = result.kind is SliceFailureKind.CRASHED and result.resume_point is None
            return result.model_copy(update={"resume_point": resume_point}) if is_without else result
        if isinstance(cause, EngineTimeout) and cause.type is TimeoutType.HEARTBEAT:
            fault = FaultRecord(code="worker_lost", message="The worker that read the slice was lost.", retryable=True)
            return SliceAttemptFailure(kind=SliceFailureKind.CRASHED, fault=fault, resume_point=resume_point)
        if isinstance(cause, EngineTimeout):
            message = "The slice was not read within its timeout."
            fault = FaultRecord(code="slice_timeout", message=message, hint=TIMEOUT_HINT)
            return SliceAttemptFailure(kind=SliceFailureKind.FAILED, fault=fault, resume_point=resume_point)
        return SliceAttemptFailure(kind=SliceFailureKind.FAILED, fault=build_fault(error), resume_point=resume_point)

    def _show_end_and_build_slice_result(self, read: ReadSliceResult) -> SliceResult:
        self._set_status_and_show_in_web_ui(read.ending, None, None)
        return SliceResult(
            done=read.ending is not SliceReadOutcome.OVER,
            orders=read.orders,
            halves=len(read.halves),
            further_done=read.further_done,
        )

    def _set_status_and_show_in_web_ui(self, state: str, pause: float | None, fault: FaultRecord | None) -> None:
        """Show the state in the search attributes and the Web UI."""
        self._status = SliceStatus(
            purpose=self._params.job.purpose,
            attempt=self._attempt,
            pause_seconds=pause,
            next_attempt_at=None if pause is None else workflow.now() + timedelta(seconds=pause),
            fault=fault,
        )
        if state != self._state:
            self._state = state
            workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        workflow.set_current_details(f"**{state}**, attempts: {self._attempt}. {fault.sentence if fault else ''}")
