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
    from activities.orders.slice_attempts import CREDENTIALS_CODE, FAILURE_TYPE
    from domain.orders import backfills, names
    from domain.orders.activity_models import (
        BackfillInput,
        ClaimInput,
        ClaimResult,
        ClockResult,
        NoteFailureInput,
        OrderCycleInput,
        OrderCycleStatus,
        PlatformInput,
        SliceInput,
        SliceJob,
        SliceResult,
    )
    from domain.orders.slices import AttemptFailure
    from domain.orders.windows import TimeWindow
    from workflows.activity_calls import CLOCK_READING, SHORT_ACTIVITY, read_fault
    from workflows.orders import alarms
    from workflows.orders.backfill import OrderBackfill
    from workflows.orders.handle import attributes
    from workflows.orders.slice import OrderSlice

FAILURES_STOP = 3
"""Consecutive failed slices after which this run stops claiming: the next one tries again in a minute."""

_SCHEDULED = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_FRESH_SECONDS = timedelta(seconds=10)
_ELSEWHERE_SECONDS = timedelta(seconds=30)
_BACKFILL_SECONDS = 600


@workflow.defn(name=names.CYCLE_WORKFLOW)
class OrderCycle:
    """One run of a platform's schedule."""

    @workflow.init
    def __init__(self, order: OrderCycleInput) -> None:
        self._order = order
        self._running: dict[TimeWindow, asyncio.Task[None]] = {}
        self._elsewhere: dict[TimeWindow, datetime] = {}
        """Slices whose workflow is running already, and when that was seen."""
        self._ended_by_hand: set[TimeWindow] = set()
        self._status = OrderCycleStatus()
        self._failures_in_row = 0
        self._is_news = False
        self._skew: float | None = None
        self._clock_trouble = ""
        self._skew_at = workflow.now()

    @workflow.run
    async def run(self, order: OrderCycleInput) -> OrderCycleStatus:
        """Claim and run slices until nothing is left to claim."""
        claimed = await self._claimed(self._scheduled_at())
        if claimed.rereads:
            for job in claimed.jobs:
                await self._read_again(claimed.project_id, job)
            return self._tell(f"{len(claimed.jobs)} slices of this time are read again")
        while True:
            for job in claimed.jobs:
                self._keep_going(claimed.project_id, job)
            if not self._running:
                return self._over(claimed)
            await self._some_news(claimed)
            if self._failures_in_row >= FAILURES_STOP:
                await self._drained()
                return self._tell("slice after slice failed")
            if workflow.info().is_continue_as_new_suggested():
                await self._drained()
                workflow.continue_as_new(order.model_copy(update={"continued": True}))
            claimed = await self._claimed()

    @workflow.query
    def status(self) -> OrderCycleStatus:
        """Return the status of the cycle."""
        return self._status

    def _scheduled_at(self) -> datetime | None:
        """Return when the schedule was due to start this run; None for a run that continues another."""
        return None if self._order.continued else workflow.info().typed_search_attributes.get(_SCHEDULED)

    async def _claimed(self, scheduled_at: datetime | None = None) -> ClaimResult:
        order = ClaimInput(
            platform=self._order.platform,
            skew_seconds=await self._skew_seconds(),
            heeds_pause=self._order.heeds_pause,
            scheduled_at=scheduled_at,
            running=sorted({*self._running, *self._left_alone()}, key=str),
        )
        return await workflow.execute_activity_method(OrderActivities.claim, order, **SHORT_ACTIVITY)

    def _left_alone(self) -> set[TimeWindow]:
        """Return slices not to be started now; after a while it is checked again whether they run elsewhere."""
        seen_after = workflow.now() - _ELSEWHERE_SECONDS
        self._elsewhere = {window: seen for window, seen in self._elsewhere.items() if seen > seen_after}
        return {*self._elsewhere, *self._ended_by_hand}

    async def _skew_seconds(self) -> float | None:
        """Return how far the platform's clock is ahead of ours; read every few seconds, not at every claim."""
        if self._skew is None or workflow.now() - self._skew_at > _FRESH_SECONDS:
            try:
                reading = await self._clock()
            except ActivityError as error:
                if self._skew is None:
                    await self._without_clock(error)
                # A platform that does not answer for a while still has the same clock afterwards.
                return self._skew
            self._skew, self._skew_at = reading.clock.skew_seconds, workflow.now()
            if reading.alarm is not None:
                await alarms.tell([reading.alarm])
        return self._skew

    async def _without_clock(self, error: ActivityError) -> None:
        """Record why the clock cannot be read; the watch reports platforms without a worker."""
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == FAILURE_TYPE:
            fault = AttemptFailure.model_validate(cause.details[0]).fault
        elif isinstance(cause, EngineTimeout) and cause.type is TimeoutType.SCHEDULE_TO_START:
            fault = None
        else:
            fault = read_fault(error)
        self._clock_trouble = fault.sentence if fault else "No worker serves the platform."
        if fault:
            is_refused = fault.code == CREDENTIALS_CODE
            told = await workflow.execute_activity_method(
                OrderActivities.credentials_failed if is_refused else OrderActivities.clock_failed,
                NoteFailureInput(platform=self._order.platform, fault=fault, asked_at=workflow.now()),
                **SHORT_ACTIVITY,
            )
            await alarms.tell(told.alarms)

    async def _clock(self) -> ClockResult:
        return await workflow.execute_activity_method(
            PlatformActivities.clock,
            PlatformInput(platform=self._order.platform),
            task_queue=names.desk_queue(self._order.platform),
            **CLOCK_READING,
            summary="look at the platform's clock",
        )

    def _keep_going(self, project_id: str, job: SliceJob) -> None:
        self._running[job.window] = asyncio.create_task(self._see_through(project_id, job))

    async def _see_through(self, project_id: str, job: SliceJob) -> None:
        """Start a slice and wait for its end; one that is already running is left alone."""
        handle = await self._start(project_id, job)
        try:
            if handle is None:
                self._elsewhere[job.window] = workflow.now()
            else:
                self._count(await handle)
        except ChildWorkflowError:
            # It was terminated by an operator: this run does not start it again.
            self._ended_by_hand.add(job.window)
        del self._running[job.window]
        self._is_news = True

    def _count(self, sliced: SliceResult) -> None:
        self._failures_in_row = 0 if sliced.fault is None else self._failures_in_row + 1
        self._status = self._status.model_copy(
            update={
                "finished": self._status.finished + (sliced.fault is None),
                "failed": self._status.failed + (sliced.fault is not None),
            }
        )

    async def _read_again(self, project_id: str, job: SliceJob) -> None:
        """Start a backfill of one slice: once, however many runs of the schedule lie in its time."""
        suffix = f"{int(workflow.now().timestamp()) // _BACKFILL_SECONDS}"
        order = BackfillInput(
            platform=self._order.platform,
            project_id=project_id,
            backfill_id=workflow.uuid4().hex,
            window=job.window,
            asked_by=backfills.ASKED_BY_SCHEDULE,
            asked_at=workflow.now(),
        )
        with suppress(WorkflowAlreadyStartedError):
            await workflow.start_child_workflow(
                OrderBackfill.run,
                order,
                id=names.backfill_id(self._order.platform, job.window, suffix),
                task_queue=names.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                cancellation_type=ChildWorkflowCancellationType.ABANDON,
                search_attributes=attributes(project_id, "running"),
                static_summary=f"read {job.window} again",
            )

    async def _start(self, project_id: str, job: SliceJob) -> ChildWorkflowHandle[OrderSlice, SliceResult] | None:
        """Start a slice's workflow, which outlives this one; None where it is running already."""
        with suppress(WorkflowAlreadyStartedError):
            return await workflow.start_child_workflow(
                OrderSlice.run,
                SliceInput(platform=self._order.platform, project_id=project_id, job=job),
                id=names.slice_id(self._order.platform, job.window, job.suffix),
                task_queue=names.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                cancellation_type=ChildWorkflowCancellationType.ABANDON,
                search_attributes=attributes(project_id, "running"),
                static_summary=f"{job.purpose} reading of {job.window}",
            )
        return None

    async def _some_news(self, claimed: ClaimResult) -> None:
        """Wait until enough slices have ended to claim several at once, or more may have settled."""
        few = min(len(self._running) // 2, 2 * claimed.threads)

        def is_due() -> bool:
            return self._is_news and (len(self._running) <= max(few, claimed.threads))

        with suppress(TimeoutError):
            await workflow.wait_condition(is_due, timeout=_FRESH_SECONDS)
        self._is_news = False
        self._tell("slices are read")

    async def _drained(self) -> None:
        if self._running:
            await workflow.wait(list(self._running.values()))

    def _over(self, claimed: ClaimResult) -> OrderCycleStatus:
        """End the run; one that could claim nothing without a clock fails."""
        if claimed.is_paused:
            return self._tell("the platform is paused")
        if self._skew is None:
            message = f"The platform's clock could not be read, so that nothing new was claimed. {self._clock_trouble}"
            self._tell(message)
            raise ApplicationError(message, type="clock_unread", non_retryable=True)
        return self._tell("nothing is left to claim")

    def _tell(self, details: str) -> OrderCycleStatus:
        """Show the progress in the Web UI."""
        self._status = self._status.model_copy(update={"running": sorted(self._running, key=str)})
        figures = f"{self._status.finished} finished, {len(self._running)} going, {self._status.failed} failed"
        workflow.set_current_details(f"{details}: {figures}")
        return self._status
