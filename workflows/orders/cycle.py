"""The workflow of a cycle: claim what has settled, run slices, and claim again, until nothing is left to claim.

Every slice is in the ledger before it is started. So a cycle that is terminated loses nothing: the next one finds what
is claimed and not read.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    TimeoutType,
    WorkflowAlreadyStartedError,
)
from temporalio.exceptions import TimeoutError as EngineTimeout
from temporalio.workflow import ChildWorkflowCancellationType, ChildWorkflowHandle, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.orders.activities import OrderActivities, PlatformActivities
    from activities.orders.slice_attempts import CREDENTIALS_CODE, FAILURE_TYPE, ZONE_CODE
    from domain.faults import FaultRecord
    from domain.orders import names, slices
    from domain.orders.activity_models import (
        BackfillInput,
        ClaimSlicesInput,
        ClaimSlicesResult,
        ClockSkew,
        MeasureClockSkewInput,
        OrderCycleStatus,
        PlatformAndCycleRunFlags,
        PlatformFaultInput,
        SliceInput,
        SliceJob,
        SliceResult,
    )
    from domain.orders.slices import SliceAttemptFailure, SliceFailureKind
    from domain.orders.windows import TimeWindow
    from workflows.activity_calls import CLAIM, CLOCK_READING, SHORT_ACTIVITY, build_fault
    from workflows.orders import alarms
    from workflows.orders.backfill import OrderBackfillWorkflow
    from workflows.orders.handle import build_search_attributes
    from workflows.orders.slice import OrderSliceWorkflow
    from workflows.run_length import is_run_long

FAILURES_STOP = 3
"""Consecutive failed slices after which this run stops claiming: the next one tries again in a minute."""

_SCHEDULED = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_CLOCK_READING_VALID = timedelta(seconds=10)
_CLAIM_INTERVAL_MAX = timedelta(seconds=10)
_ELSEWHERE_VALID = timedelta(seconds=30)
_LAST_SLICES_MAX = timedelta(seconds=60)
_SLICES_BEFORE_NEXT_RUN_MAX = timedelta(seconds=5)
"""Nothing is claimed meanwhile, and slices that still run then go on without this run."""
_LATE_START = timedelta(minutes=5)
"""A run that was due longer ago is one of a past that is read again: the schedule itself starts none so late."""
_BACKFILL_SECONDS = 600


@workflow.defn(name=names.CYCLE_WORKFLOW)
class OrderCycleWorkflow:
    """One run of a platform's schedule."""

    @workflow.init
    def __init__(self, params: PlatformAndCycleRunFlags) -> None:
        self._params = params
        self._running: dict[TimeWindow, asyncio.Task[None]] = {}
        self._running_elsewhere: dict[TimeWindow, datetime] = {}
        """Slices whose workflow is running already, and when that was seen."""
        self._terminated: set[TimeWindow] = set()
        self._status = OrderCycleStatus()
        self._failures_in_row = 0
        self._has_changed = False
        self._has_left_slices_due = False
        self._skew: float | None = None
        self._clock_message = ""
        self._skew_at = workflow.now()

    @workflow.run
    async def run(self, params: PlatformAndCycleRunFlags) -> OrderCycleStatus:
        """Claim and run slices until nothing is left to claim."""
        claimed = await self._measure_skew_and_claim_slices(self._get_scheduled_time_if_started_late())
        if claimed.rereads:
            for job in claimed.jobs:
                await self._start_backfill_of_slice_once(claimed.project_id, job)
            return self._set_status_and_show_in_web_ui(f"{len(claimed.jobs)} slices of this time are read again")
        while True:
            for job in claimed.jobs:
                self._run_slice_in_background(claimed.project_id, job)
            # A reading that ended during the claim may have left slices that the claim took for running.
            if not self._running and not self._has_left_slices_due:
                return self._return_status_or_fail_if_clock_was_unread(claimed)
            await self._wait_until_claim_is_due(claimed)
            if self._failures_in_row >= FAILURES_STOP:
                await self._wait_a_moment_for_slices(_LAST_SLICES_MAX)
                return self._set_status_and_show_in_web_ui("slice after slice failed")
            if is_run_long():
                await self._wait_a_moment_for_slices(_SLICES_BEFORE_NEXT_RUN_MAX)
                workflow.continue_as_new(params.model_copy(update={"continued": True}))
            claimed = await self._measure_skew_and_claim_slices()

    @workflow.query
    def status(self) -> OrderCycleStatus:
        """Return the status of the cycle."""
        return self._status

    def _get_scheduled_time_if_started_late(self) -> datetime | None:
        """Return when the schedule was due to start this run, where that is past; None for any other run."""
        info = workflow.info()
        due = None if self._params.continued else info.typed_search_attributes.get(_SCHEDULED)
        return due if due is not None and info.workflow_start_time - due > _LATE_START else None

    async def _measure_skew_and_claim_slices(self, scheduled_at: datetime | None = None) -> ClaimSlicesResult:
        claim = ClaimSlicesInput(
            platform=self._params.platform,
            skew_seconds=await self._measure_skew_if_old(),
            heeds_pause=self._params.heeds_pause,
            scheduled_at=scheduled_at,
            running=sorted({*self._running, *self._list_slices_not_to_start()}, key=str),
        )
        self._has_left_slices_due = False
        return await workflow.execute_activity_method(OrderActivities.claim_slices, claim, **CLAIM)

    def _list_slices_not_to_start(self) -> set[TimeWindow]:
        """Return slices not to be started now; after a while it is checked again whether they run elsewhere."""
        seen_after = workflow.now() - _ELSEWHERE_VALID
        self._running_elsewhere = {
            window: seen for window, seen in self._running_elsewhere.items() if seen > seen_after
        }
        return {*self._running_elsewhere, *self._terminated}

    async def _measure_skew_if_old(self) -> float | None:
        """Return how far the platform's clock is ahead of ours; read every few seconds, not at every claim."""
        if self._skew is None or workflow.now() - self._skew_at > _CLOCK_READING_VALID:
            asked_at = workflow.now()
            try:
                clock = await self._measure_clock_skew()
            except ActivityError as error:
                if _is_clock_put_back(error):
                    self._skew = None
                if self._skew is None:
                    await self._report_clock_failure(error, asked_at)
                # A platform that does not answer for a while still has the same clock afterwards.
                return self._skew
            self._skew, self._skew_at = clock.skew_seconds, workflow.now()
            if clock.is_alarm_due:
                # Not by the reading, which may fail for good although its worker has saved the skew.
                result = await workflow.execute_activity_method(
                    OrderActivities.record_skew_alarm, clock, **SHORT_ACTIVITY
                )
                await alarms.start_alarm_deliveries(result.alarms)
        return self._skew

    async def _report_clock_failure(self, error: ActivityError, asked_at: datetime) -> None:
        """Record why the clock cannot be read; the watch reports platforms without a worker."""
        fault, self._clock_message = _get_fault_and_sentence_of_clock_failure(error)
        if fault:
            is_refused = fault.code == CREDENTIALS_CODE
            result = await workflow.execute_activity_method(
                OrderActivities.record_refused_credentials if is_refused else OrderActivities.record_clock_failure,
                PlatformFaultInput(platform=self._params.platform, fault=fault, asked_at=asked_at),
                **SHORT_ACTIVITY,
            )
            await alarms.start_alarm_deliveries(result.alarms)

    async def _measure_clock_skew(self) -> ClockSkew:
        return await workflow.execute_activity_method(
            PlatformActivities.measure_clock_skew,
            MeasureClockSkewInput(platform=self._params.platform, records_failure=self._skew is None),
            task_queue=names.build_control_queue_name(self._params.platform),
            **CLOCK_READING,
            summary="look at the platform's clock",
        )

    def _run_slice_in_background(self, project_id: str, job: SliceJob) -> None:
        task = asyncio.create_task(self._start_slice_and_wait_for_end(project_id, job))
        self._running |= dict.fromkeys(job.windows, task)

    async def _start_slice_and_wait_for_end(self, project_id: str, job: SliceJob) -> None:
        """Start a slice and wait for its end; one that is already running is left alone."""
        try:
            handle = await self._start_slice_workflow(project_id, job)
            if handle is None:
                self._running_elsewhere[job.window] = workflow.now()
            else:
                self._count_slice_result_and_failures_in_row(job, await handle)
        except ChildWorkflowError:
            # It was terminated by an operator: this run does not start it again.
            self._terminated.add(job.window)
        finally:
            for window in job.windows:
                del self._running[window]
            self._has_changed = True

    def _count_slice_result_and_failures_in_row(self, job: SliceJob, sliced: SliceResult) -> None:
        has_ended = sliced.done or sliced.fault is not None
        if not has_ended or sliced.halves or sliced.further_done < len(job.further):
            self._has_left_slices_due = True
        self._failures_in_row = 0 if sliced.fault is None else self._failures_in_row + 1
        self._status = self._status.add_result(sliced)

    async def _start_backfill_of_slice_once(self, project_id: str, job: SliceJob) -> None:
        """Start a backfill of one slice, however many runs of the schedule lie in its time.

        Runs in the same ten minutes of the clock start it once. Runs on both sides of their end read the slice twice,
        which costs requests and changes nothing.
        """
        suffix = f"{int(workflow.now().timestamp()) // _BACKFILL_SECONDS}"
        backfill = BackfillInput(
            platform=self._params.platform,
            project_id=project_id,
            backfill_id=workflow.uuid4().hex,
            window=job.window,
            requested_by=slices.REQUESTED_BY_SCHEDULE,
            requested_at=workflow.now(),
        )
        with suppress(WorkflowAlreadyStartedError):
            await workflow.start_child_workflow(
                OrderBackfillWorkflow.run,
                backfill,
                id=names.build_backfill_workflow_id(self._params.platform, job.window, suffix),
                task_queue=names.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                cancellation_type=ChildWorkflowCancellationType.ABANDON,
                search_attributes=build_search_attributes(project_id, "running"),
                static_summary=f"read {job.window} again",
            )

    async def _start_slice_workflow(
        self, project_id: str, job: SliceJob
    ) -> ChildWorkflowHandle[OrderSliceWorkflow, SliceResult] | None:
        """Start a slice's workflow, which outlives this one; None where it is running already."""
        with suppress(WorkflowAlreadyStartedError):
            return await workflow.start_child_workflow(
                OrderSliceWorkflow.run,
                SliceInput(platform=self._params.platform, project_id=project_id, job=job),
                id=names.build_slice_workflow_id(self._params.platform, job.window, job.suffix),
                task_queue=names.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                cancellation_type=ChildWorkflowCancellationType.ABANDON,
                search_attributes=build_search_attributes(project_id, "running"),
                static_summary=f"{job.purpose} reading of {job.window}",
            )
        return None

    async def _wait_until_claim_is_due(self, claimed: ClaimSlicesResult) -> None:
        """Wait until enough readings have ended to claim several slices at once, or more may have settled."""

        def count_readings() -> int:
            return len(set(self._running.values()))

        # Half of the readings have ended, so that a claim starts many; at least one a thread is left to go on.
        readings_left_at_claim = max(claimed.threads, min(count_readings() // 2, 2 * claimed.threads))

        def is_due() -> bool:
            return self._has_changed and count_readings() <= readings_left_at_claim

        with suppress(TimeoutError):
            await workflow.wait_condition(is_due, timeout=_CLAIM_INTERVAL_MAX)
        self._has_changed = False
        self._set_status_and_show_in_web_ui("slices are read")

    async def _wait_a_moment_for_slices(self, limit: timedelta) -> None:
        """Wait for the slices that run, most of which end soon; those that pause for hours go on without this run."""
        if self._running:
            tasks = list(dict.fromkeys(self._running.values()))
            await workflow.wait(tasks, timeout=limit.total_seconds())

    def _return_status_or_fail_if_clock_was_unread(self, claimed: ClaimSlicesResult) -> OrderCycleStatus:
        """End the run; one that could claim nothing without a clock fails."""
        if claimed.is_paused:
            return self._set_status_and_show_in_web_ui("the platform is paused")
        if self._skew is None:
            message = f"The platform's clock could not be read, so that nothing new was claimed. {self._clock_message}"
            self._set_status_and_show_in_web_ui(message)
            raise ApplicationError(message, type="clock_unread", non_retryable=True)
        return self._set_status_and_show_in_web_ui("nothing is left to claim")

    def _set_status_and_show_in_web_ui(self, details: str) -> OrderCycleStatus:
        """Show the progress in the Web UI."""
        self._status = self._status.model_copy(update={"running": sorted(self._running, key=str)})
        figures = f"{self._status.finished} finished, {len(self._running)} going, {self._status.failed} failed"
        workflow.set_current_details(f"{details}: {figures}")
        return self._status


def _is_clock_put_back(error: ActivityError) -> bool:
    """Return whether a platform's clock was read and refused, so that its last skew holds no longer."""
    fault, _ = _get_fault_and_sentence_of_clock_failure(error)
    return fault is not None and fault.code == ZONE_CODE


def _get_fault_and_sentence_of_clock_failure(error: ActivityError) -> tuple[FaultRecord | None, str]:
    """Return what is wrong with a platform's clock, or None where nothing is, and a sentence about the failure.

    A worker that was lost, stopped or held up, a limit of ours that is used up, and an outage of this installation's
    own, are no fault of the platform.
    """
    cause = error.cause
    if isinstance(cause, EngineTimeout):
        if cause.type is TimeoutType.SCHEDULE_TO_START:
            return None, "No worker serves the platform."
        return None, "The worker that read it was lost or held up, which is no fault of the platform."
    if isinstance(cause, ApplicationError) and cause.type == FAILURE_TYPE:
        failure = SliceAttemptFailure.model_validate(cause.details[0])
        is_ours = failure.is_own_limit or failure.kind is SliceFailureKind.CRASHED
        return (None if is_ours else failure.fault), failure.fault.sentence
    fault = build_fault(error)
    return fault, fault.sentence
