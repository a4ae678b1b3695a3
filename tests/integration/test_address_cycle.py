"""One cycle after the other over the real log: what is taken, tried again, given up, listed, woken and archived."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from activities.addresses import delivery
from domain.addresses.activity_models import ApplyStepInput, CyclePhase
from domain.addresses.operations import Module, Operation, OperationOutcome, OperationResult
from infra.settings import Settings
from stores import table_copies
from stores.addresses import actions, cycle
from stores.addresses.actions import ActorWithReason
from tests.support.address_said import acks, create, delete, swap
from tests.support.address_world import CycleHarness, Fault, PythonModules, change_settings, load_by_number

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ALL_ACKS = dict.fromkeys(Module, "Y")
ALL = [module.value for module in Module]


@pytest.mark.parametrize(
    ("threshold", "share", "taken"),
    [
        pytest.param(3, 0.0, ["s1", "s2", "c1"], id="by-priority"),
        pytest.param(3, 0.34, ["s1", "c1", "d1"], id="with-a-share"),
        pytest.param(3, 0.1, ["s1", "c1", "d1"], id="with-a-share-below-one-message"),
        pytest.param(2, 0.1, ["d1", "c1"], id="the-oldest-where-not-all-have-room"),
    ],
)
async def test_a_cycle_is_filled_by_topics(world: CycleHarness, threshold: int, share: float, taken: list[str]) -> None:
    """A14: swaps, then createUpdates, then deletes, in the order of ids; with a share none is kept out."""
    change_settings(world, threshold=threshold, minimum_share=share)
    await world.publish([delete("d1", 9), create("c1", 5), create("c2", 6), swap("s1", 1, 2), swap("s2", 3, 4)])

    await world.cycle()

    rows = await load_by_number(world)
    assert sorted(number for number, row in rows.items() if row["cycle_id"]) == sorted(taken)
    assert world.cycles[0].plan.loaded == threshold


async def test_a_swap_is_tried_again_after_the_creates(world: CycleHarness) -> None:
    """Its side appears in the same cycle, so that nothing has failed."""
    await world.publish([swap("s", 1, 2), create("a", 1), create("b", 2)])

    await world.cycle()

    row = (await load_by_number(world))["s"]
    assert (row["proc_flag"], row["retry_times"], row["wait_reason"], acks(row)) == ("Y", 0, None, ALL_ACKS)
    assert world.modules.books[Module.OD].live == {1: (1_002, {"n": 0}), 2: (1_001, {"n": 0})}


async def test_a_swap_that_misses_a_side_in_one_module_is_applied_in_none(world: CycleHarness) -> None:
    """What brings the side is not held back by it, and comes before it in all modules."""
    await world.publish([create("a", 1), create("b", 2)])
    await world.cycle()
    del world.modules.books[Module.OD].live[2]
    await world.publish([swap("s", 1, 2)])
    await world.cycle()
    waits = (await load_by_number(world))["s"]
    assert (waits["wait_reason"]["module"], waits["wait_reason"]["uprn"], waits["od_ack"]) == ("od", 2, "N")
    assert ("ed", "3") not in world.count_effects()

    await world.publish([create("cure", 2, n=7)])
    await world.cycle()

    assert (await load_by_number(world))["s"]["proc_flag"] == "Y"
    for book in world.modules.books.values():
        assert book.live == {1: (1_002, {"n": 7}), 2: (1_001, {"n": 0})}


async def test_a_swap_is_applied_nowhere_while_a_module_cannot_be_asked(world: CycleHarness) -> None:
    """Whether its sides are there is unknown."""
    await world.publish([create("a", 1), create("b", 2)])
    await world.cycle()
    await world.publish([swap("s", 1, 2)])
    world.modules.faults = [Fault.AWAY, None, None, None] * 2
    await world.cycle()
    row = (await load_by_number(world))["s"]

    assert (row["proc_flag"], row["wait_reason"]["kind"], row["ed_ack"]) == ("N", "failed", "N")
    assert [book.live[1][0] for book in world.modules.books.values()] == [1_001] * 4


async def test_a_swap_without_a_side_is_given_up_after_two_cycles(world: CycleHarness) -> None:
    """Then it waits for a person, and says what it lacks, where, and who deleted it."""
    await world.publish([create("a", 1), create("b", 2)])
    await world.cycle()
    await world.publish([delete("gone", 2)])
    await world.cycle()
    await world.publish([swap("s", 1, 2)])

    for _ in range(4):
        await world.cycle()

    row = (await load_by_number(world))["s"]
    assert (row["proc_flag"], row["retry_times"], acks(row)) == ("N", 2, dict.fromkeys(Module, "N"))
    assert row["wait_reason"] == {"kind": "missing", "module": "ed", "modules": ALL, "uprn": 2, "missing": [2]}
    assert row["reason"] == "The address was deleted by message gone."
    assert row["od_stack_trace"] == "There is no address with UPRN 2."
    assert [cycle.plan.loaded for cycle in world.cycles[-4:]] == [1, 1, 0, 0]


async def test_who_waits_is_woken_by_what_it_waits_for(world: CycleHarness) -> None:
    """And with it who queues behind it, though both were to wait for an hour."""
    change_settings(world, retry_pause_seconds=3_600)
    await world.publish([create("a", 1), create("c", 3), swap("s", 1, 2), swap("t", 1, 3)])
    await world.cycle()
    await world.cycle()
    assert world.cycles[-1].plan.loaded == 0
    waiting = await load_by_number(world)
    assert waiting["t"]["wait_reason"] == {"kind": "behind", "behind": waiting["s"]["id"]}

    await world.publish([create("b", 2)])
    while world.cycles[-1].plan.loaded or len(world.cycles) < 3:
        await world.cycle()

    rows = await load_by_number(world)
    assert {row["proc_flag"] for row in rows.values()} == {"Y"}
    assert {uprn: address_id for uprn, (address_id, _) in world.modules.books[Module.ED].live.items()} == {
        1: 1_003,
        2: 1_001,
        3: 1_002,
    }


async def test_only_modules_that_have_not_acknowledged_are_called_again(world: CycleHarness) -> None:
    """A5: with the same id; that one answered nothing is no try, because another could not be asked."""
    await world.publish([create("a", 1, n=1)])
    world.modules.faults = [None, Fault.LOST, None, Fault.AWAY]
    await world.cycle()
    row = (await load_by_number(world))["a"]
    assert (row["proc_flag"], row["retry_times"]) == ("N", 0)
    assert acks(row) == {Module.ED: "Y", Module.IM: "N", Module.WFM: "Y", Module.OD: "N"}
    assert row["im_stack_trace"] == "There is no answer."
    world.modules.calls.clear()

    await world.make_all_due()
    await world.cycle()

    row = (await load_by_number(world))["a"]
    assert (row["proc_flag"], row["retry_times"], acks(row), row["im_stack_trace"]) == ("Y", 0, ALL_ACKS, None)
    assert world.modules.calls == [(module, (str(row["id"]),)) for module in (Module.IM, Module.OD)]


async def test_the_last_message_of_an_address_makes_the_others_needless(world: CycleHarness) -> None:
    """A13: they are done, without an acknowledgement, and say who followed them; also one that was given up."""
    change_settings(world, failed_cycles_max=1)
    await world.publish([create("a", 1)])
    world.modules.broken = {(Module.IM, 1)}
    await world.cycle()
    world.modules.broken = set()

    await world.publish([create("b", 1), delete("c", 1), create("d", 1, n=4)])
    await world.cycle()

    rows = await load_by_number(world)
    assert {rows[number]["superseded_by"] for number in "abc"} == {rows["d"]["id"]}
    assert {rows[number]["proc_flag"] for number in "abcd"} == {"Y"}
    assert acks(rows["b"]) == dict.fromkeys(Module, None)
    assert rows["d"]["superseded_by"] is None
    assert await world.fetch("SELECT 1 FROM im_infi_addr_sync_log") == []


async def test_logical_deletes_are_listed_and_leave_the_list_when_the_address_comes_back(world: CycleHarness) -> None:
    """A11: with the modules that have orders in flight."""
    await world.publish([create("a", 1)])
    await world.cycle()
    for module in (Module.OD, Module.ED):
        world.modules.books[module].busy = {1_001}
    await world.publish([delete("gone", 1)])
    await world.cycle()

    [listed] = await world.fetch("SELECT * FROM addr_logical_deletes")
    assert (listed["address_id"], listed["uprn"], listed["log_id"]) == (
        1_001,
        1,
        (await load_by_number(world))["gone"]["id"],
    )
    assert {name: listed[f"{name}_flag"] for name in ("od", "wfm", "ed")} == {"od": "Y", "wfm": "N", "ed": "Y"}

    await world.publish([create("again", 1)])
    await world.cycle()

    assert await world.fetch("SELECT * FROM addr_logical_deletes") == []


async def test_what_came_back_in_some_modules_only_stays_listed(world: CycleHarness) -> None:
    """The module that missed the createUpdate still keeps the address, and a delete needs it no more."""
    world.modules.books[Module.OD].busy = {1_001}
    await world.publish([create("a", 1)])
    await world.cycle()
    await world.publish([delete("gone", 1)])
    await world.cycle()
    world.modules.broken = {(Module.OD, 1)}
    await world.publish([create("back", 1)])
    await world.cycle()
    world.modules.broken = set()
    await world.publish([delete("gone-again", 1)])
    await world.cycle()

    assert set(world.modules.books[Module.OD].logical) == {1_001}
    assert [row["address_id"] for row in await world.fetch("SELECT * FROM addr_logical_deletes")] == [1_001]


async def test_an_older_create_that_comes_late_to_one_module_unlists_no_younger_delete(world: CycleHarness) -> None:
    """The others have deleted the address after it, and one of them keeps it for its orders."""
    change_settings(world, retry_pause_seconds=3600.0)
    world.modules.books[Module.WFM].busy = {1_001}
    world.modules.broken = {(Module.OD, 1)}
    await world.publish([create("a", 1)])
    await world.cycle()
    await world.publish([delete("gone", 1)])
    await world.cycle()
    world.modules.broken = set()
    late = (await load_by_number(world))["a"]["id"]
    assert await actions.retry_message(world.database, late, ActorWithReason("ann", "OD is back"))
    await world.cycle()

    rows = await load_by_number(world)
    assert (rows["a"]["proc_flag"], rows["a"]["superseded_by"], rows["gone"]["proc_flag"]) == ("Y", None, "N")
    assert set(world.modules.books[Module.WFM].logical) == {1_001}
    [listed] = await world.fetch("SELECT * FROM addr_logical_deletes")
    assert (listed["address_id"], listed["log_id"], listed["wfm_flag"]) == (1_001, rows["gone"]["id"], "Y")


async def test_a_restored_log_gives_no_id_again_that_modules_know(world: CycleHarness, settings: Settings) -> None:
    """After `haulage reconcile`, later messages are applied, and not mistaken for earlier ones."""
    await world.publish([create("a", 1, n=1)])
    await world.cycle()
    await world.fetch("TRUNCATE im_infi_addr_sync_log_his, addr_sync_keys")
    await world.fetch("TRUNCATE im_infi_addr_sync_log RESTART IDENTITY")

    async with table_copies.open_connection_without_limits(settings.database) as connection:
        await table_copies.skip_ids_possibly_used_after_backup(connection)
    await world.publish([create("b", 1, n=2)])
    await world.cycle()

    assert world.modules.books[Module.OD].live == {1: (1_001, {"n": 2})}


async def test_a_swap_that_was_overtaken_is_refused_with_the_name_of_the_other(world: CycleHarness) -> None:
    """A7: a given-up message does not undo a later one; nor is it reported as done, since nothing replaces it."""
    change_settings(world, failed_cycles_max=1)
    await world.publish([create("a", 1), create("c", 3), swap("old", 1, 2)])
    await world.cycle()
    await world.publish([create("b", 2), swap("young", 1, 3)])
    await world.cycle()

    await world.retry()
    await world.cycle()

    rows = await load_by_number(world)
    old, young = rows["old"], rows["young"]
    assert young["proc_flag"] == "Y"
    assert (old["proc_flag"], old["superseded_by"], old["retry_times"]) == ("N", None, 1)
    assert [old[f"{module}_ack"] for module in Module] == ["N"] * 4
    assert old["wait_reason"] == {"kind": "overtaken", "module": "ed", "modules": ALL, "behind": young["id"]}
    assert old["reason"].startswith("Message young, a later swap, was applied before")
    assert world.count_effects()[Module.ED, str(old["id"])] == 0


@pytest.mark.parametrize("is_heard", [False, True], ids=["unheard", "heard"])
async def test_an_overtaken_swap_names_one_whose_answers_were_lost(world: CycleHarness, is_heard: bool) -> None:
    """A7: all modules applied it, no answer arrived, and an operator skipped it: its effect is found all the same."""
    change_settings(world, failed_cycles_max=1)
    await world.publish([create("a", 1), create("c", 3), swap("old", 1, 2)])
    await world.cycle()
    await world.publish([swap("young", 1, 3)])
    world.modules.faults = [*[None] * len(Module), *[Fault.LOST] * len(Module), *[Fault.AWAY] * 40]
    await world.cycle()
    young = (await load_by_number(world))["young"]
    assert young["wait_reason"]["unsure"] == list(Module)
    assert await actions.skip_message(
        world.database, young["id"], ActorWithReason("ann", "nobody heard of it"), though_touched=True
    )
    world.modules.faults = []
    if is_heard:
        await delivery.confirm_unconfirmed_messages(world.database, world.modules)
        assert acks((await load_by_number(world))["young"]) == ALL_ACKS
    await world.publish([create("b", 2)])
    await world.cycle()
    await world.cycle()

    rows = await load_by_number(world)
    assert rows["old"]["wait_reason"] == {"kind": "overtaken", "module": "ed", "modules": ALL, "behind": young["id"]}
    assert rows["old"]["reason"].startswith("Message young, a later swap, was applied before")


async def test_an_overtaken_swap_says_so_where_the_other_is_forgotten(world: CycleHarness) -> None:
    """A7: the modules know of it, and neither the log nor its history does any more."""
    change_settings(world, failed_cycles_max=1)
    await world.publish([create("a", 1), create("c", 3), swap("old", 1, 2)])
    await world.cycle()
    await world.publish([swap("young", 1, 3)])
    await world.cycle()
    await world.fetch("DELETE FROM im_infi_addr_sync_log_his WHERE msg_no = 'young'")
    await world.publish([create("b", 2)])
    await world.cycle()
    await world.cycle()

    old = (await load_by_number(world))["old"]
    assert old["wait_reason"] == {"kind": "overtaken", "module": "ed", "modules": ALL}
    assert old["reason"].startswith("A later swap that is neither in the log nor in its history any more was applied")


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
async def test_a_worker_that_was_taken_for_dead_changes_nothing(world: CycleHarness, fails: bool) -> None:
    """A8: another worker's acknowledgement stays, and a cycle fails once, whichever worker reports it."""
    await world.publish([create("a", 1)])
    plan = await cycle.resume_or_begin_cycle(world.database, world.settings, "cycle")
    order = ApplyStepInput(cycle_id="cycle", phase=CyclePhase.WRITE, step=plan.writes[0])
    asked, woken = asyncio.Event(), asyncio.Event()

    class SuspendedModules(PythonModules):
        async def apply_operations(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
            asked.set()
            await woken.wait()
            return [
                OperationResult(op_id=each.op_id, outcome=OperationOutcome.FAILED, error="too late")
                for each in operations
            ]

    asleep = asyncio.create_task(
        delivery.check_send_and_record_step(world.database, world.settings, SuspendedModules(world.fuse), order)
    )
    await asked.wait()
    world.modules.broken = {(module, 1) for module in Module} if fails else set()
    await delivery.check_send_and_record_step(world.database, world.settings, world.modules, order)
    woken.set()
    await asleep

    row = (await load_by_number(world))["a"]
    assert (row["proc_flag"], row["retry_times"]) == (("N", 1) if fails else ("Y", 0))
    assert acks(row) == dict.fromkeys(Module, "N" if fails else "Y")


@pytest.mark.long
async def test_a_death_between_any_two_steps_changes_nothing(world: CycleHarness) -> None:
    """A12: whether the step is taken again or the cycle is given up and another takes it up; all ack gaps included."""

    async def run(deaths: list[int], *, abandon: bool) -> Any:
        await world.begin([1_004])
        await world.publish([create(f"a{uprn}", uprn) for uprn in range(1, 5)])
        await world.cycle()
        await world.publish(
            [swap("s", 1, 2), swap("t", 2, 3), swap("w", 3, 5), create("c", 2, n=7), create("e", 5), delete("d", 4)]
        )
        burned = world.fuse.burned
        await world.cycle(deaths, abandon=abandon)
        burned = world.fuse.burned - burned
        for _ in range(3):
            await world.cycle()
        rows = {
            row["msg_no"]: (row["proc_flag"], row["retry_times"], acks(row)) for row in (await world.rows()).values()
        }
        listed = [row["address_id"] for row in await world.fetch("SELECT address_id FROM addr_logical_deletes")]
        effects = sorted((each.module, world.modules.effects.count(each)) for each in world.modules.effects)
        return burned, (rows, listed, effects, [book.live for book in world.modules.books.values()])

    steps, undisturbed = await run([], abandon=False)
    assert {flag for flag, _, _ in undisturbed[0].values()} == {"Y"}
    assert steps > 50

    for step in range(steps):
        for abandon in (False, True):
            assert (await run([step], abandon=abandon))[1] == undisturbed, (step, abandon)
