"""A worker that was suspended in the middle of a step changes nothing of what happened meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from activities.addresses import delivery
from domain.addresses.activity_models import AppliedMessageCounts, ApplyStepInput, CyclePhase
from domain.addresses.operations import LiveUprnsAndAppliedOps, Module, Operation, OperationOutcome, OperationResult
from stores.addresses import actions, cycle
from stores.addresses.actions import ActorWithReason
from tests.support.address_said import create, swap
from tests.support.address_world import CycleHarness, Fault, PythonModules, change_settings, load_by_number, settle

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

BY = ActorWithReason("ann", "the address is there now")


class SleepingModules(PythonModules):
    """The modules of a world as a worker finds them that is stopped while it calls them.

    Args:
        is_sent: Whether it is stopped after the call and before the answer is written, which has none; else before.
    """

    def __init__(self, world: CycleHarness, *, is_sent: bool = False) -> None:
        super().__init__(world.fuse)
        self.asked, self.woken = asyncio.Event(), asyncio.Event()
        self._world = world
        self._is_sent = is_sent

    async def apply_operations(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """See base class."""
        answers = [
            OperationResult(op_id=each.op_id, outcome=OperationOutcome.FAILED, error="No answer.")
            for each in operations
        ]
        if self._is_sent:
            await self._world.modules.apply_operations(module, operations)
        self.asked.set()
        await self.woken.wait()
        return answers if self._is_sent else await self._world.modules.apply_operations(module, operations)

    async def look_up_operations(self, module: Module, operations: Sequence[Operation], /) -> LiveUprnsAndAppliedOps:
        """See base class."""
        return await self._world.modules.look_up_operations(module, operations)


async def test_a_worker_that_wakes_finds_younger_data_and_changes_nothing(world: CycleHarness) -> None:
    """It sends its old operation; meanwhile the message is done, and a younger one of its address, too."""
    await world.publish([create("old", 1, n=1)])
    plan = await cycle.resume_or_begin_cycle(world.database, world.settings, "cycle")
    order = ApplyStepInput(cycle_id="cycle", phase=CyclePhase.WRITE, step=plan.writes[0])
    modules = SleepingModules(world)
    asleep = asyncio.create_task(delivery.check_send_and_record_step(world.database, world.settings, modules, order))
    await modules.asked.wait()
    # The next worker cannot reach two of the modules: the message fails, and a younger one supersedes it.
    world.modules.faults = [None, Fault.AWAY, None, Fault.AWAY]
    await delivery.check_send_and_record_step(world.database, world.settings, world.modules, order)
    world.modules.faults = []
    await world.publish([create("young", 1, n=2)])
    await settle(world)
    before = await load_by_number(world)
    modules.woken.set()
    assert await asleep == AppliedMessageCounts()

    rows = await load_by_number(world)
    assert rows["young"] == before["young"]
    assert (rows["old"]["proc_flag"], rows["old"]["superseded_by"]) == ("Y", rows["young"]["id"])
    assert rows["old"]["cycle_id"] == before["old"]["cycle_id"]
    assert [book.live for book in world.modules.books.values()] == [{1: (1_001, {"n": 2})}] * 4
    assert max(world.count_effects().values()) == 1


@pytest.mark.parametrize("is_sent", [False, True], ids=["before-it-sends", "before-it-writes"])
async def test_a_worker_that_wakes_over_a_swap_changes_nothing(world: CycleHarness, is_sent: bool) -> None:
    """Others have done the swap and a younger one meanwhile: neither is undone, repeated or reported differently."""
    await world.publish([create("a", 1), create("b", 2), create("c", 3)])
    await settle(world)
    await world.publish([swap("old", 1, 2)])
    plan = await cycle.resume_or_begin_cycle(world.database, world.settings, "cycle")
    order = ApplyStepInput(cycle_id="cycle", phase=CyclePhase.SWAP, step=plan.swaps[0])
    modules = SleepingModules(world, is_sent=is_sent)
    asleep = asyncio.create_task(delivery.check_send_and_record_step(world.database, world.settings, modules, order))
    await modules.asked.wait()
    # Two modules answer the next worker only later.
    world.modules.faults = [*[None] * len(Module), None, Fault.LOST, None, Fault.AWAY]
    await delivery.check_send_and_record_step(world.database, world.settings, world.modules, order)
    world.modules.faults = []
    await world.publish([swap("young", 1, 3), create("c2", 3, n=5)])
    await settle(world)
    before, live = await load_by_number(world), [dict(book.live) for book in world.modules.books.values()]
    assert {row["proc_flag"] for row in before.values()} == {"Y"}
    modules.woken.set()
    await asleep
    await settle(world)

    assert await load_by_number(world) == before
    assert [book.live for book in world.modules.books.values()] == live == [live[0]] * 4
    assert max(world.count_effects().values()) == 1


async def test_a_worker_that_wakes_in_a_later_cycle_costs_no_try(world: CycleHarness) -> None:
    """It had no answer in its own cycle; another one has the message now, and only that can fail it."""
    change_settings(world, failed_cycles_max=5)
    world.modules.broken = {(Module.OD, 1)}
    await world.publish([create("a", 1)])
    plan = await cycle.resume_or_begin_cycle(world.database, world.settings, "first")
    order = ApplyStepInput(cycle_id="first", phase=CyclePhase.WRITE, step=plan.writes[0])
    modules = SleepingModules(world, is_sent=True)
    asleep = asyncio.create_task(delivery.check_send_and_record_step(world.database, world.settings, modules, order))
    await modules.asked.wait()
    await delivery.check_send_and_record_step(world.database, world.settings, world.modules, order)
    await cycle.resume_or_begin_cycle(world.database, world.settings, "second")
    modules.woken.set()
    await asleep

    row = (await load_by_number(world))["a"]
    assert (row["proc_flag"], row["retry_times"], row["cycle_id"]) == ("P", 1, "second")
    assert [row[f"{module}_ack"] for module in Module] == ["Y", "Y", "Y", "N"]


async def test_a_worker_that_wakes_does_not_write_over_what_an_operator_said(world: CycleHarness) -> None:
    """The swap was skipped meanwhile, and modules have gone on: they answer the worker that it was overtaken."""
    await world.publish([create("a", 1), create("b", 2)])
    await settle(world)
    await world.publish([swap("old", 1, 2)])
    plan = await cycle.resume_or_begin_cycle(world.database, world.settings, "cycle")
    order = ApplyStepInput(cycle_id="cycle", phase=CyclePhase.WAIT, step=plan.swaps[0])
    modules = SleepingModules(world)
    asleep = asyncio.create_task(delivery.check_send_and_record_step(world.database, world.settings, modules, order))
    await modules.asked.wait()
    world.modules.faults = [*[None] * len(Module), *[Fault.AWAY] * len(Module)]
    await delivery.check_send_and_record_step(world.database, world.settings, world.modules, order)
    world.modules.faults = []
    id_ = (await load_by_number(world))["old"]["id"]
    assert await actions.skip_message(world.database, id_, BY, though_touched=True)
    for book in world.modules.books.values():
        book.swap_seq |= {1: id_ + 1, 2: id_ + 1}
    before = await load_by_number(world)
    modules.woken.set()
    await asleep

    assert await load_by_number(world) == before
    assert before["old"]["reason"] == f"Skipped by ann: {BY.reason}"


async def test_a_worker_that_wakes_adds_its_answers_to_what_an_operator_skipped(world: CycleHarness) -> None:
    """All modules apply it for that worker: it has their acknowledgements then, and still is skipped."""
    await world.publish([create("a", 1)])
    plan = await cycle.resume_or_begin_cycle(world.database, world.settings, "cycle")
    order = ApplyStepInput(cycle_id="cycle", phase=CyclePhase.WRITE, step=plan.writes[0])
    modules = SleepingModules(world)
    asleep = asyncio.create_task(delivery.check_send_and_record_step(world.database, world.settings, modules, order))
    await modules.asked.wait()
    world.modules.faults = [Fault.AWAY] * len(Module)
    await delivery.check_send_and_record_step(world.database, world.settings, world.modules, order)
    world.modules.faults = []
    assert await actions.skip_message(world.database, (await load_by_number(world))["a"]["id"], BY, though_touched=True)
    modules.woken.set()
    await asleep

    row = (await load_by_number(world))["a"]
    assert [row[f"{module}_ack"] for module in Module] == ["Y"] * len(Module)
    assert (row["proc_flag"], row["reason"]) == ("Y", f"Skipped by ann: {BY.reason}")
