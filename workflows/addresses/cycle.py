"""The cycle: swaps, then createUpdates, then waiting swaps, then deletes; repeated while there are messages.

The log records what is done. So a cycle that ends in the middle loses nothing: the next one completes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.addresses.activities import AddressCycleActivities
    from domain.addresses import names
    from domain.addresses.activity_models import (
        AddressCycleStatus,
        AppliedMessageCounts,
        ApplyStepInput,
        CarriedCycleTotals,
        CycleMessageTotals,
        CyclePhase,
        CyclePlanResult,
        EndedCycleToArchive,
        IdOfCycleToBegin,
        ListWaitingSwapsInput,
        StepsOfWaitingSwaps,
    )
    from domain.addresses.ordering import CycleStep
    from workflows.activity_calls import ADDRESS_BATCH, ADDRESS_CHANGES
    from workflows.run_length import is_run_long


@workflow.defn(name=names.CYCLE_WORKFLOW)
class AddressCycle:
    """One run of the schedule: cycles, until no message is left."""

    @workflow.init
    def __init__(self, params: CarriedCycleTotals) -> None:
        self._totals = params.so_far
        self._status = AddressCycleStatus(totals=params.so_far)

    @workflow.run
    async def run(self, params: CarriedCycleTotals) -> AddressCycleStatus:
        cycles = 0
        while True:
            cycles += 1
            before, began = self._totals, workflow.now()
            plan = await self._resume_or_begin_cycle(f"{workflow.info().run_id}-{cycles}")
            if not plan.loaded:
                return self._set_status_and_show_in_web_ui(CyclePhase.IDLE, "", paused=plan.paused)
            await self._run_sequentially(plan, CyclePhase.SWAP, plan.swaps)
            await self._run_in_parallel(plan, CyclePhase.WRITE, plan.writes)
            await self._run_sequentially(plan, CyclePhase.WAIT, await self._list_waiting_swaps(plan))
            await self._run_in_parallel(plan, CyclePhase.DELETE, plan.deletes)
            counts = self._totals.subtract(before)
            seconds = (workflow.now() - began).total_seconds()
            await self._confirm_and_archive_messages_and_count_cycle(
                plan, EndedCycleToArchive(cycle_id=plan.cycle_id, totals=counts, seconds=seconds)
            )
            if is_run_long():
                workflow.continue_as_new(CarriedCycleTotals(so_far=self._totals))

    @workflow.query
    def status(self) -> AddressCycleStatus:
        return self._status

    async def _resume_or_begin_cycle(self, cycle_id: str) -> CyclePlanResult:
        self._set_status_and_show_in_web_ui(CyclePhase.LOAD, cycle_id)
        plan = await workflow.execute_activity_method(
            AddressCycleActivities.resume_or_begin_cycle_unless_paused,
            IdOfCycleToBegin(cycle_id=cycle_id),
            **ADDRESS_BATCH,
        )
        self._totals = self._totals.add(loaded=plan.loaded, superseded=plan.superseded)
        return plan

    async def _list_waiting_swaps(self, plan: CyclePlanResult) -> Sequence[CycleStep]:
        """Return the swaps that are unfinished by now, whether this cycle or an earlier one has tried them."""
        if not plan.swaps and not plan.waiting:
            return []
        queued: StepsOfWaitingSwaps = await workflow.execute_activity_method(
            AddressCycleActivities.list_waiting_swaps,
            ListWaitingSwapsInput(cycle_id=plan.cycle_id, config_version=plan.config_version),
            **ADDRESS_BATCH,
        )
        return queued.steps

    async def _run_sequentially(self, plan: CyclePlanResult, phase: CyclePhase, steps: Sequence[CycleStep]) -> None:
        for number, step in enumerate(steps, 1):
            await self._apply_step(plan, phase, step, f"{number} of {len(steps)}")

    async def _run_in_parallel(self, plan: CyclePlanResult, phase: CyclePhase, steps: Sequence[CycleStep]) -> None:
        """Run all steps of a phase; when this returns, all have ended."""
        slots = asyncio.Semaphore(plan.step_concurrency)

        async def apply_step_within_slots(number: int, step: CycleStep) -> None:
            async with slots:
                await self._apply_step(plan, phase, step, f"{number} of {len(steps)}")

        await asyncio.gather(*(apply_step_within_slots(number, step) for number, step in enumerate(steps, 1)))

    async def _apply_step(self, plan: CyclePlanResult, phase: CyclePhase, step: CycleStep, which: str) -> None:
        self._set_status_and_show_in_web_ui(phase, plan.cycle_id)
        applied: AppliedMessageCounts = await workflow.execute_activity_method(
            AddressCycleActivities.apply_step_and_count_endings,
            ApplyStepInput(cycle_id=plan.cycle_id, phase=phase, step=step, config_version=plan.config_version),
            **ADDRESS_CHANGES,
            summary=f"{phase} {which}: {sum(map(len, step))} messages",
        )
        self._totals = self._totals.add(done=applied.done, failed=applied.failed, superseded=applied.superseded)

    async def _confirm_and_archive_messages_and_count_cycle(
        self, plan: CyclePlanResult, ended: EndedCycleToArchive
    ) -> None:
        self._set_status_and_show_in_web_ui(CyclePhase.ARCHIVE, plan.cycle_id)
        await workflow.execute_activity_method(
            AddressCycleActivities.confirm_and_archive_messages,
            ended,
            **ADDRESS_BATCH,
        )
        self._totals = self._totals.add(cycles=1)

    def _set_status_and_show_in_web_ui(
        self, phase: CyclePhase, cycle_id: str, *, paused: bool = False
    ) -> AddressCycleStatus:
        """Update the status, also in the Web UI."""
        totals: CycleMessageTotals = self._totals
        self._status = AddressCycleStatus(phase=phase, cycle_id=cycle_id, totals=totals, paused=paused)
        workflow.set_current_details(
            f"**{'paused' if paused else phase}**, cycle {totals.cycles + 1}: {totals.loaded:,} loaded, "
            f"{totals.done:,} done, {totals.superseded:,} superseded, {totals.failed:,} failed"
        )
        return self._status
