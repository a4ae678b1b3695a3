"""Workflows that read a time again on request: a backfill, slice after slice, and the report of a day, to compare it.

The slices of a backfill are workflows of their own, which continue whatever becomes of this one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception
from temporalio.workflow import ChildWorkflowCancellationType, ChildWorkflowHandle, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.orders.activities import BackfillActivities
    from activities.orders.reporting import ReportActivities
    from domain.faults import FaultRecord
    from domain.orders import names, slices
    from domain.orders.activity_models import (
        BackfillBatchInput,
        BackfillInput,
        BackfillStatus,
        EndBackfillInput,
        NextReportPartInput,
        OrderReportFigures,
        ReportInput,
        ReportReadingProgress,
        SliceInput,
        SliceJob,
        SliceResult,
    )
    from domain.orders.slices import BackfillProgress, BackfillState, FailedSlice
    from infra import temporal
    from workflows.activity_calls import REPORT_READING, REPORT_WRITING, SHORT_ACTIVITY
    from workflows.orders import alarms
    from workflows.orders.handle import build_search_attributes
    from workflows.orders.slice import OrderSliceWorkflow
    from workflows.run_length import is_run_long


_ELSEWHERE_SECONDS = 10
_ELSEWHERE_MAX_SECONDS = 1_800
"""Pause before another try to start a slice that is already being read again: doubled each time, up to the second.
Such a reading may take days, and each try stays in the history."""


@workflow.defn(name=names.BACKFILL_WORKFLOW)
class OrderBackfillWorkflow:
    """Backfill of one time of one platform."""

    @workflow.init
    def __init__(self, params: BackfillInput) -> None:
        self._params = params
        self._status = BackfillStatus(progress=params.progress or BackfillProgress())
        self._unread: list[FailedSlice] = []

    @workflow.run
    async def run(self, params: BackfillInput) -> BackfillStatus:
        """Read batch after batch."""
        try:
            if params.progress is None:
                await workflow.execute_activity_method(
                    BackfillActivities.insert_backfill_if_new, params, **SHORT_ACTIVITY
                )
            while jobs := await self._save_progress_and_get_next():
                ended = await asyncio.gather(*(self._read_slice_again(job) for job in jobs))
                progress = self._status.progress
                for job, fault in zip(jobs, ended, strict=True):
                    progress = progress.add_slice(job.window, fault)
                self._set_status_and_show_in_web_ui(progress)
                if is_run_long() and not self._unread:
                    workflow.continue_as_new(params.model_copy(update={"progress": progress}))
        except (asyncio.CancelledError, ActivityError) as error:
            if not is_cancelled_exception(error):
                raise
            await asyncio.shield(asyncio.create_task(self._record_end_and_send_alarms(slices.BACKFILL_TERMINATED)))
            raise
        end = asyncio.create_task(self._record_end_and_send_alarms(None))
        with suppress(asyncio.CancelledError):
            return await asyncio.shield(end)
        # It was cancelled too late to end otherwise: the end may be recorded already, and its alarm not sent yet.
        return await end

    @workflow.query
    def status(self) -> BackfillStatus:
        """Return the status of the backfill."""
        return self._status

    async def _save_progress_and_get_next(self) -> list[SliceJob]:
        step = BackfillBatchInput(
            platform=self._params.platform,
            backfill_id=self._params.backfill_id,
            window=self._params.window,
            progress=self._status.progress,
            unread=tuple(self._unread),
        )
        batch = await workflow.execute_activity_method(
            BackfillActivities.save_progress_and_list_next, step, **SHORT_ACTIVITY
        )
        self._unread = []
        return batch.jobs

    async def _read_slice_again(self, job: SliceJob) -> FaultRecord | None:
        """Read one slice again; return the fault if that failed."""
        pause = _ELSEWHERE_SECONDS
        while (handle := await self._start_slice(job)) is None:
            await workflow.sleep(pause)
            pause = min(2 * pause, _ELSEWHERE_MAX_SECONDS)
        try:
            sliced = await handle
        except ChildWorkflowError:
            self._unread.append(FailedSlice(window=job.window, fault=slices.SLICE_TERMINATED))
            return slices.SLICE_TERMINATED
        return sliced.fault if sliced.done or sliced.fault else slices.SLICE_REPLACED

    async def _start_slice(self, job: SliceJob) -> ChildWorkflowHandle[OrderSliceWorkflow, SliceResult] | None:
        """Start the reading of a slice; None where it is already being read again."""
        try:
            return await workflow.start_child_workflow(
                OrderSliceWorkflow.run,
                SliceInput(platform=self._params.platform, project_id=self._params.project_id, job=job),
                id=names.build_slice_workflow_id(self._params.platform, job.window, job.suffix),
                task_queue=names.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                cancellation_type=ChildWorkflowCancellationType.ABANDON,
                search_attributes=build_search_attributes(self._params.project_id, "running"),
                static_summary=f"{job.purpose} reading of {job.window}",
            )
        except WorkflowAlreadyStartedError:
            return None

    async def _record_end_and_send_alarms(self, fault: FaultRecord | None) -> BackfillStatus:
        progress = self._status.progress
        result = await workflow.execute_activity_method(
            BackfillActivities.close_backfill_and_alarm_if_failed,
            EndBackfillInput(
                platform=self._params.platform, backfill_id=self._params.backfill_id, progress=progress, fault=fault
            ),
            **SHORT_ACTIVITY,
        )
        await alarms.start_alarm_deliveries(result.alarms)
        fault = fault or progress.fault
        state = BackfillState.FAILED if fault else BackfillState.SUCCEEDED
        self._status = BackfillStatus(state=state, progress=progress, fault=fault)
        workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        self._set_status_and_show_in_web_ui(progress)
        return self._status

    def _set_status_and_show_in_web_ui(self, progress: BackfillProgress) -> None:
        """Show the progress in the Web UI."""
        self._status = self._status.model_copy(update={"progress": progress})
        workflow.set_current_details(f"{self._status.state}: {progress.read} read again, {progress.failed} failed")


@workflow.defn(name=names.REPORT_WORKFLOW)
class OrderReportWorkflow:
    """Report of one day of one platform."""

    @workflow.init
    def __init__(self, params: ReportInput) -> None:
        self._params = params
        self._part = params.so_far or ReportReadingProgress(number=0, read_to=params.window.start)

    @workflow.run
    async def run(self, params: ReportInput) -> OrderReportFigures:
        """Read part after part, then compare."""
        while self._part.read_to < params.window.end:
            self._part = await self._read_next_part()
            workflow.set_current_details(f"read to {self._part.read_to.isoformat()} of {params.window.end.isoformat()}")
            if is_run_long():
                workflow.continue_as_new(params.model_copy(update={"so_far": self._part}))
        report = await workflow.execute_activity_method(
            ReportActivities.compare_and_write_report,
            self._build_part_input(),
            task_queue=names.build_report_queue_name(params.platform),
            **REPORT_WRITING,
            summary=f"compare {params.day}",
        )
        workflow.upsert_search_attributes([temporal.STATE.value_set("succeeded")])
        return report

    @workflow.query
    def status(self) -> ReportReadingProgress:
        """Return how far the day has been read."""
        return self._part

    async def _read_next_part(self) -> ReportReadingProgress:
        return await workflow.execute_activity_method(
            ReportActivities.list_orders_and_store_report_part,
            self._build_part_input(),
            task_queue=names.build_report_queue_name(self._params.platform),
            **REPORT_READING,
            summary=f"read on from {self._part.read_to.isoformat()}",
        )

    def _build_part_input(self) -> NextReportPartInput:
        run = workflow.info().first_execution_run_id
        folder = names.build_report_parts_prefix(self._params.platform, self._params.day.isoformat(), run)
        return NextReportPartInput(order=self._params, folder=folder, after=self._part)
