"""The workflow of a cycle on a real engine, beside activities and slices that the test answers for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from domain.faults import FaultRecord
from domain.orders import names
from domain.orders.activity_models import (
    ClaimSlicesInput,
    ClaimSlicesResult,
    ClockSkew,
    MeasureClockSkewInput,
    PlatformAndCycleRunFlags,
    SliceInput,
    SliceJob,
    SliceResult,
)
from domain.orders.windows import TimeWindow
from infra import temporal
from workflows.orders import cycle
from workflows.orders.cycle import OrderCycleWorkflow

pytestmark = pytest.mark.stack

PLATFORM = "shop-1"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST, SECOND = (
    TimeWindow(start=NOON + timedelta(hours=hour), end=NOON + timedelta(hours=hour + 1)) for hour in (0, 1)
)


@workflow.defn(name=names.SLICE_WORKFLOW, sandboxed=False)
class FinishedOnSignal:
    """A slice that ends when it is allowed to, without its further ones."""

    def __init__(self) -> None:
        self.may_end = False

    @workflow.run
    async def run(self, params: SliceInput) -> SliceResult:
        """End on the signal, or at once where no slice shares the reading."""
        await workflow.wait_condition(lambda: self.may_end or not params.job.further)
        return SliceResult(done=True)

    @workflow.signal
    def end(self) -> None:
        """Let it end."""
        self.may_end = True


@workflow.defn(name=names.SLICE_WORKFLOW, sandboxed=False)
class FailedOrPausing:
    """A slice that pauses for hours, or one that fails."""

    @workflow.run
    async def run(self, params: SliceInput) -> SliceResult:
        """Pause where it is the first."""
        if params.job.window == FIRST:
            await workflow.sleep(timedelta(hours=9))
        return SliceResult(done=False, fault=FaultRecord(code="platform_failed", message="It lied."))


class OneClaim:
    """A single claim of these slices."""

    def __init__(self, windows: list[TimeWindow]) -> None:
        self.jobs = [SliceJob(window=window) for window in windows]

    @activity.defn(name="order_claim")
    async def claim(self, params: ClaimSlicesInput) -> ClaimSlicesResult:
        """Return what is not claimed yet."""
        jobs, self.jobs = self.jobs, []
        return ClaimSlicesResult(project_id="prj_1", jobs=jobs, threads=len(jobs) or 1)

    @activity.defn(name="order_clock")
    async def measure(self, params: MeasureClockSkewInput) -> ClockSkew:
        """Return a clock that is right."""
        return ClockSkew(platform=params.platform, skew_seconds=0)


async def test_a_slice_that_pauses_for_hours_does_not_keep_a_run_from_its_end(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be claimed until then: the next run leaves it alone, and claims."""
    monkeypatch.setattr(cycle, "_LAST_SLICES_MAX", timedelta(seconds=0.1))
    engine = await temporal.connect()
    following = [
        TimeWindow(start=SECOND.start + timedelta(hours=hour), end=SECOND.end + timedelta(hours=hour))
        for hour in range(cycle.FAILURES_STOP)
    ]
    claims = OneClaim([FIRST, *following])
    control = Worker(engine, task_queue=names.build_control_queue_name(PLATFORM), activities=[claims.measure])
    plans = Worker(
        engine,
        task_queue=names.QUEUE,
        workflows=[OrderCycleWorkflow, FailedOrPausing],
        activities=[claims.claim],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with control, plans, asyncio.timeout(60):
        status = await engine.execute_workflow(
            OrderCycleWorkflow.run, PlatformAndCycleRunFlags(platform=PLATFORM), id="cycle", task_queue=names.QUEUE
        )

    assert (status.failed, status.running) == (cycle.FAILURES_STOP, [FIRST])


class ClaimsDuringAnEnd:
    """Claims of which the second is made while the only reading ends and leaves its further slice."""

    def __init__(self, engine: Client) -> None:
        self.engine = engine
        self.running: list[list[TimeWindow]] = []

    @activity.defn(name="order_claim")
    async def claim(self, params: ClaimSlicesInput) -> ClaimSlicesResult:
        """Return both slices as one reading, then none, and then what is left."""
        self.running.append(params.running)
        jobs = []
        if len(self.running) == 1:
            jobs = [SliceJob(window=FIRST, further=[SECOND])]
        elif len(self.running) == 2:
            reading = self.engine.get_workflow_handle(names.build_slice_workflow_id(PLATFORM, FIRST, ""))
            await reading.signal(FinishedOnSignal.end)
            await reading.result()
            # Its end reaches the cycle before this claim's result does.
            await asyncio.sleep(1)
        elif len(self.running) == 3:
            jobs = [SliceJob(window=SECOND)]
        return ClaimSlicesResult(project_id="prj_1", jobs=jobs, threads=1)

    @activity.defn(name="order_clock")
    async def measure(self, params: MeasureClockSkewInput) -> ClockSkew:
        """Return a clock that is right."""
        return ClockSkew(platform=params.platform, skew_seconds=0)


async def test_a_slice_that_a_reading_left_during_a_claim_is_claimed_again(namespace: str) -> None:
    """The claim took it for running, so that its result says nothing about it: another claim follows."""
    engine = await temporal.connect()
    claims = ClaimsDuringAnEnd(engine)
    control = Worker(engine, task_queue=names.build_control_queue_name(PLATFORM), activities=[claims.measure])
    plans = Worker(
        engine, task_queue=names.QUEUE, workflows=[OrderCycleWorkflow, FinishedOnSignal], activities=[claims.claim]
    )
    async with control, plans:
        status = await engine.execute_workflow(
            OrderCycleWorkflow.run, PlatformAndCycleRunFlags(platform=PLATFORM), id="cycle", task_queue=names.QUEUE
        )

    assert claims.running[1] == [FIRST, SECOND]
    assert status.finished == 2
