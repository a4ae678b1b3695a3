"""The plan of a cycle: swaps, then createUpdates, then the swaps that wait, then deletes; again while there is work.

The log says what is done. So a cycle that ends in the middle loses nothing: the next one finds what it had begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.addresses.cycle import CycleSteps
    from domain.addresses import names
    from domain.addresses.cycle import (
        Applied,
        ApplyOrder,
        CycleOrder,
        CycleStatus,
        LoadOrder,
        Phase,
        Plan,
        Queued,
        QueueOrder,
        Totals,
    )
    from domain.addresses.queues import Step
    from workflows.activity_calls import ADDRESS_BATCH, ADDRESS_CHANGES


@workflow.defn(name=names.CYCLE_WORKFLOW)
class AddressCycle:
    """One run of the schedule: cycles, until nothing is left to do."""

    @workflow.init
    def __init__(self, order: CycleOrder) -> None:
        self._totals = order.so_far
        self._status = CycleStatus(totals=order.so_far)

    @workflow.run
    async def run(self, order: CycleOrder) -> CycleStatus:
        """Read this as the story."""
        cycles = 0
        while True:
            cycles += 1
            plan = await self._load(f"{workflow.info().run_id}-{cycles}")
            if not plan.loaded:
                return self._tell(Phase.IDLE, "", paused=plan.paused)
            await self._one_after_another(plan, Phase.SWAP, plan.swaps)
            await self._side_by_side(plan, Phase.WRITE, plan.writes)
            await self._one_after_another(plan, Phase.WAIT, await self._waiting(plan))
            await self._side_by_side(plan, Phase.DELETE, plan.deletes)
            await self._archive(plan)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(CycleOrder(so_far=self._totals))

    @workflow.query
    def status(self) -> CycleStatus:
        """Where the run stands."""
        return self._status

    async def _load(self, cycle_id: str) -> Plan:
        self._tell(Phase.LOAD, cycle_id)
        plan = await workflow.execute_activity_method(
            CycleSteps.load,
            LoadOrder(cycle_id=cycle_id),
            **ADDRESS_BATCH,
        )
        self._totals = self._totals.plus(loaded=plan.loaded, superseded=plan.superseded)
        return plan

    async def _waiting(self, plan: Plan) -> Sequence[Step]:
        """Swaps that are not done by now, whether this cycle or an earlier one has tried them."""
        if not plan.swaps and not plan.waiting:
            return []
        queued: Queued = await workflow.execute_activity_method(
            CycleSteps.waiting,
            QueueOrder(cycle_id=plan.cycle_id, config_version=plan.config_version),
            **ADDRESS_BATCH,
        )
        return queued.steps

    async def _one_after_another(self, plan: Plan, phase: Phase, steps: Sequence[Step]) -> None:
        for number, step in enumerate(steps, 1):
            await self._apply(plan, phase, step, f"{number} of {len(steps)}")

    async def _side_by_side(self, plan: Plan, phase: Phase, steps: Sequence[Step]) -> None:
        """All steps of a phase; when this returns, all have ended."""
        places = asyncio.Semaphore(plan.runs)

        async def one(number: int, step: Step) -> None:
            async with places:
                await self._apply(plan, phase, step, f"{number} of {len(steps)}")

        await asyncio.gather(*(one(number, step) for number, step in enumerate(steps, 1)))

    async def _apply(self, plan: Plan, phase: Phase, step: Step, which: str) -> None:
        self._tell(phase, plan.cycle_id)
        applied: Applied = await workflow.execute_activity_method(
            CycleSteps.apply,
            ApplyOrder(cycle_id=plan.cycle_id, phase=phase, step=step, config_version=plan.config_version),
            **ADDRESS_CHANGES,
            summary=f"{phase} {which}: {sum(map(len, step))} messages",
        )
        self._totals = self._totals.plus(done=applied.done, failed=applied.failed, superseded=applied.superseded)

    async def _archive(self, plan: Plan) -> None:
        self._tell(Phase.ARCHIVE, plan.cycle_id)
        await workflow.execute_activity_method(
            CycleSteps.archive,
            **ADDRESS_BATCH,
        )
        self._totals = self._totals.plus(cycles=1)

    def _tell(self, phase: Phase, cycle_id: str, *, paused: bool = False) -> CycleStatus:
        """Show where the run stands in the Web UI."""
        totals: Totals = self._totals
        self._status = CycleStatus(phase=phase, cycle_id=cycle_id, totals=totals, paused=paused)
        workflow.set_current_details(
            f"**{'paused' if paused else phase}**, cycle {totals.cycles + 1}: {totals.loaded:,} loaded, "
            f"{totals.done:,} done, {totals.superseded:,} superseded, {totals.failed:,} failed"
        )
        return self._status
