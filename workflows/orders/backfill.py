"""The workflow of a backfill: read the complete slices of a time again, batch after batch, and close its record.

Slices are workflows of their own, which continue whatever becomes of this one.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception
from temporalio.workflow import ChildWorkflowCancellationType, ChildWorkflowHandle, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.orders.activities import BackfillActivities
    from domain.faults import FaultRecord
    from domain.orders import backfills, names
    from domain.orders.activity_models import (
        BackfillBatchInput,
        BackfillInput,
        BackfillStatus,
        EndBackfillInput,
        SliceInput,
        SliceJob,
        SliceResult,
    )
    from domain.orders.backfills import BackfillProgress, BackfillState, FailedSlice
    from infra import temporal
    from workflows.activity_calls import SHORT_ACTIVITY
    from workflows.orders import alarms
    from workflows.orders.handle import attributes
    from workflows.orders.slice import OrderSlice

_ELSEWHERE_SECONDS = 10
"""Pause before another try to start a slice that is already being read again."""


@workflow.defn(name=names.BACKFILL_WORKFLOW)
class OrderBackfill:
    """Backfill of one time of one platform."""

    @workflow.init
    def __init__(self, order: BackfillInput) -> None:
        self._order = order
        self._status = BackfillStatus(progress=order.progress or BackfillProgress())
        self._unread: list[FailedSlice] = []

    @workflow.run
    async def run(self, order: BackfillInput) -> BackfillStatus:
        """Read batch after batch."""
        try:
            if order.progress is None:
                await workflow.execute_activity_method(BackfillActivities.begin, order, **SHORT_ACTIVITY)
            while jobs := await self._next():
                ended = await asyncio.gather(*(self._read(job) for job in jobs))
                progress = self._status.progress
                for job, fault in zip(jobs, ended, strict=True):
                    progress = progress.add(job.window, fault)
                self._tell(progress)
                if workflow.info().is_continue_as_new_suggested() and not self._unread:
                    workflow.continue_as_new(order.model_copy(update={"progress": progress}))
            return await self._ended(None)
        except (asyncio.CancelledError, ActivityError) as error:
            if not is_cancelled_exception(error):
                raise
            await asyncio.shield(asyncio.create_task(self._ended(backfills.BACKFILL_TERMINATED)))
            raise

    @workflow.query
    def status(self) -> BackfillStatus:
        """Return the status of the backfill."""
        return self._status

    async def _next(self) -> list[SliceJob]:
        step = BackfillBatchInput(
            platform=self._order.platform,
            backfill_id=self._order.backfill_id,
            window=self._order.window,
            progress=self._status.progress,
            unread=tuple(self._unread),
        )
        batch = await workflow.execute_activity_method(BackfillActivities.step, step, **SHORT_ACTIVITY)
        self._unread = []
        return batch.jobs

    async def _read(self, job: SliceJob) -> FaultRecord | None:
        """Read one slice again; return the fault if that failed."""
        while (handle := await self._start(job)) is None:
            await workflow.sleep(_ELSEWHERE_SECONDS)
        try:
            sliced = await handle
        except ChildWorkflowError:
            self._unread.append(FailedSlice(window=job.window, fault=backfills.SLICE_TERMINATED))
            return backfills.SLICE_TERMINATED
        return sliced.fault if sliced.done or sliced.fault else backfills.SLICE_REPLACED

    async def _start(self, job: SliceJob) -> ChildWorkflowHandle[OrderSlice, SliceResult] | None:
        """Start the reading of a slice; None where it is already being read again."""
        try:
            return await workflow.start_child_workflow(
                OrderSlice.run,
                SliceInput(platform=self._order.platform, project_id=self._order.project_id, job=job),
                id=names.slice_id(self._order.platform, job.window, job.suffix),
                task_queue=names.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                cancellation_type=ChildWorkflowCancellationType.ABANDON,
                search_attributes=attributes(self._order.project_id, "running"),
                static_summary=f"{job.purpose} reading of {job.window}",
            )
        except WorkflowAlreadyStartedError:
            return None

    async def _ended(self, fault: FaultRecord | None) -> BackfillStatus:
        progress = self._status.progress
        told = await workflow.execute_activity_method(
            BackfillActivities.end,
            EndBackfillInput(
                platform=self._order.platform, backfill_id=self._order.backfill_id, progress=progress, fault=fault
            ),
            **SHORT_ACTIVITY,
        )
        await alarms.tell(told.alarms)
        fault = fault or progress.fault
        state = BackfillState.FAILED if fault else BackfillState.SUCCEEDED
        self._status = BackfillStatus(state=state, progress=progress, fault=fault)
        workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        self._tell(progress)
        return self._status

    def _tell(self, progress: BackfillProgress) -> None:
        """Show the progress in the Web UI."""
        self._status = self._status.model_copy(update={"progress": progress})
        workflow.set_current_details(f"{self._status.state}: {progress.read} read again, {progress.failed} failed")
