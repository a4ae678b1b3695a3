"""What costs a message a try and what does not, and what wakes those that wait or were given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.addresses import delivery
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.settings import Settings
from sims.oss.module import AddressState
from stores.addresses import actions
from stores.addresses.actions import ActorWithReason
from stores.addresses.search import MessageSearchConditions
from tests.support.address_said import create, delete, swap
from tests.support.address_world import CycleHarness, Fault, change_settings, load_by_number, settle
from tests.support.addresses import running_addresses
from tests.support.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

BY = ActorWithReason("ann", "the address is there now")
BEHIND = 20


async def test_one_hopeless_swap_takes_nobody_with_it(world: CycleHarness) -> None:
    """Those behind it wait without losing a try, and go on when it is given up."""
    await world.publish([create(f"c{uprn}", uprn) for uprn in range(1, BEHIND + 2)])
    await world.publish([swap("hopeless", 1, 99)])
    await world.publish([swap(f"s{uprn}", 1, uprn) for uprn in range(2, BEHIND + 2)])

    await settle(world)

    rows = await load_by_number(world)
    assert (rows["hopeless"]["proc_flag"], rows["hopeless"]["retry_times"]) == ("N", world.settings.failed_cycles_max)
    behind = [rows[f"s{uprn}"] for uprn in range(2, BEHIND + 2)]
    assert {(row["proc_flag"], row["retry_times"]) for row in behind} == {("Y", 0)}
    # Each swap passes the address of UPRN 1 on to the next one.
    live = world.modules.books[Module.ED].live
    assert {uprn: live[uprn][0] - 1_000 for uprn in range(1, BEHIND + 2)} == {
        1: BEHIND + 1,
        **{uprn: uprn - 1 for uprn in range(2, BEHIND + 2)},
    }


async def test_modules_that_are_away_cost_no_try(world: CycleHarness) -> None:
    """However long: what waited for them is applied when they are back."""
    await world.publish([create("a", 1), create("b", 2)])
    for _ in range(3 * world.settings.failed_cycles_max):
        world.modules.faults = [Fault.AWAY] * 100
        await world.cycle()
        await world.make_all_due()
    rows = await load_by_number(world)
    assert {(row["proc_flag"], row["retry_times"]) for row in rows.values()} == {("N", 0)}

    world.modules.faults = []
    await settle(world)

    assert {row["proc_flag"] for row in (await world.rows()).values()} == {"Y"}


async def test_a_swap_is_given_up_only_when_all_modules_could_be_asked(world: CycleHarness) -> None:
    """A module that could not be asked may have applied it: given up now, it would block later messages."""
    await world.publish([create("a", 1), create("b", 2)])
    await settle(world)
    await world.publish([swap("hopeless", 1, 99), swap("next", 1, 2)])
    for _ in range(3 * world.settings.failed_cycles_max):
        # Of the modules asked for both sides, only the first answers.
        world.modules.faults = [None, Fault.AWAY, Fault.AWAY, Fault.AWAY] * 2
        await world.cycle()
        world.modules.faults = []
        await world.make_all_due()
    rows = await load_by_number(world)
    assert (rows["hopeless"]["retry_times"], rows["hopeless"]["wait_reason"]["kind"]) == (0, "missing")

    await settle(world)

    rows = await load_by_number(world)
    assert (rows["hopeless"]["proc_flag"], rows["hopeless"]["retry_times"]) == ("N", world.settings.failed_cycles_max)
    assert "unsure" not in rows["hopeless"]["wait_reason"]
    assert rows["next"]["proc_flag"] == "Y"


async def test_a_module_that_is_away_is_not_asked_without_a_pause(world: CycleHarness) -> None:
    """What was loaded is not due before the next look: a run comes to its end."""
    await world.publish([create("a", 1)])
    world.modules.faults = [Fault.AWAY] * 100
    await world.cycle()
    await world.cycle()

    assert [cycle.plan.loaded for cycle in world.cycles] == [1, 0]


async def test_what_was_given_up_is_tried_again_when_its_address_appears(world: CycleHarness) -> None:
    """No operator has to know of it."""
    await world.publish([create("a", 1), swap("s", 1, 2)])
    await settle(world)
    assert (await load_by_number(world))["s"]["retry_times"] == world.settings.failed_cycles_max

    await world.publish([create("c", 3)])
    await settle(world)
    assert (await load_by_number(world))["s"]["proc_flag"] == "N"

    await world.publish([create("b", 2)])
    await settle(world)

    assert (await load_by_number(world))["s"]["proc_flag"] == "Y"
    live = world.modules.books[Module.ED].live
    assert {uprn: address_id for uprn, (address_id, _) in live.items()} == {1: 1_002, 2: 1_001, 3: 1_003}


async def test_tries_for_want_of_a_side_are_not_counted_once_it_came(world: CycleHarness) -> None:
    """A swap that was given up is not given up again on its first failure; what queues behind it goes on, too."""
    change_settings(world, retry_pause_seconds=0)
    await world.publish([create("a", 1), create("b", 2)])
    await settle(world)
    await world.publish([delete("gone", 2)])
    await settle(world)
    await world.publish([swap("s", 1, 2)])
    await settle(world)
    row = (await load_by_number(world))["s"]
    assert (row["retry_times"], row["reason"]) == (
        world.settings.failed_cycles_max,
        "The address was deleted by message gone.",
    )

    await world.publish([create("again", 2)])
    await world.cycle()
    world.modules.broken = {(Module.OD, 1)}
    await world.cycle()
    row = (await load_by_number(world))["s"]
    assert (row["wait_reason"]["kind"], row["retry_times"]) == ("failed", 1)
    # It said who deleted the address, which is there again.
    assert row["reason"] is None

    world.modules.broken = set()
    await world.publish([swap("t", 1, 2)])
    await settle(world)

    rows = await load_by_number(world)
    assert {row["proc_flag"] for row in rows.values()} == {"Y"}
    assert [book.live[1][0] for book in world.modules.books.values()] == [1_001] * len(Module)


async def test_a_swap_whose_side_came_is_given_up_after_as_many_failures_as_others(world: CycleHarness) -> None:
    """Its tries are counted from its first failure on, and they come to an end."""
    change_settings(world, retry_pause_seconds=0)
    await world.publish([create("a", 1), swap("s", 1, 2)])
    await settle(world)
    world.modules.broken = {(Module.OD, 1)}
    await world.publish([create("b", 2)])
    await world.cycle()
    cycles = len(world.cycles)
    await settle(world)

    row = (await load_by_number(world))["s"]
    assert (row["wait_reason"]["kind"], row["retry_times"]) == ("failed", world.settings.failed_cycles_max)
    assert [bool(each.plan.loaded) for each in world.cycles[cycles:]] == [True] * world.settings.failed_cycles_max + [
        False
    ]


async def test_what_was_given_up_is_tried_again_however_its_address_came(world: CycleHarness) -> None:
    """Modules are asked when there is nothing else to do; one that cannot be asked may be the one that lacks it."""
    await world.publish([create("a", 1), swap("s", 1, 2), swap("hopeless", 1, 99)])
    await settle(world)
    assert (
        await delivery.allow_retry_of_swaps_no_longer_missing_side(
            world.database, world.settings.failed_cycles_max, world.modules
        )
        == 0
    )

    for module in (Module.ED, Module.IM, Module.WFM):
        world.modules.books[module].live[2] = (1_002, {"n": 0})
    assert (
        await delivery.allow_retry_of_swaps_no_longer_missing_side(
            world.database, world.settings.failed_cycles_max, world.modules
        )
        == 0
    )
    world.modules.books[Module.OD].live[2] = (1_002, {"n": 0})
    world.modules.faults = [None, Fault.AWAY]
    assert (
        await delivery.allow_retry_of_swaps_no_longer_missing_side(
            world.database, world.settings.failed_cycles_max, world.modules
        )
        == 0
    )
    world.modules.faults = []
    assert (
        await delivery.allow_retry_of_swaps_no_longer_missing_side(
            world.database, world.settings.failed_cycles_max, world.modules
        )
        == 1
    )
    await settle(world)

    rows = await load_by_number(world)
    assert (rows["s"]["proc_flag"], rows["hopeless"]["proc_flag"]) == ("Y", "N")
    assert world.modules.books[Module.OD].live == {1: (1_002, {"n": 0}), 2: (1_001, {"n": 0})}


async def test_cycles_look_for_addresses_that_came_otherwise(settings: Settings, tmp_path: Path) -> None:
    """An operator inserted it into the modules directly, and nothing more is published."""
    async with running_addresses(settings, tmp_path, failed_cycles_max=1) as addresses:
        await addresses.publish(Topic.CREATE_UPDATE, uprn=1, address_id=10, record={"n": 1})
        id_ = await addresses.publish(Topic.SWAP, uprn_1=1, uprn_2=2)
        await addresses.resume()

        async def is_given_up() -> bool:
            return bool((await addresses.row(id_))["retry_times"] == 1)

        await eventually(is_given_up)
        for module in Module:
            addresses.modules.modules[module].insert(AddressState(20, 2, {"n": 2}))

        assert (await addresses.wait_until_applied(id_))["retry_times"] == 0
        assert addresses.states(Module.OD) == {1: (20, {"n": 2}), 2: (10, {"n": 1})}


@pytest.mark.parametrize("is_many", [False, True], ids=["one", "many"])
async def test_who_queues_need_not_wait_for_its_time_when_its_head_is_skipped(
    world: CycleHarness, is_many: bool
) -> None:
    """Whether that is skipped by itself or with others; and who is skipped, too, is only that."""
    change_settings(world, retry_pause_seconds=3_600, pause_seconds=3_600)
    await world.publish([create("a", 1), create("b", 2), create("c", 3), create("d", 4)])
    await settle(world)
    world.modules.broken = {(module, 1) for module in Module}
    await world.publish([swap("head", 1, 2), swap("next", 2, 3), swap("last", 3, 4)])
    await world.cycle()
    rows = await load_by_number(world)
    assert [rows[each]["wait_reason"].get("behind") for each in ("head", "next", "last")] == [
        None,
        rows["head"]["id"],
        rows["next"]["id"],
    ]
    # A message that no module has applied may be skipped with others.
    world.modules.broken = set()
    await world.fetch("UPDATE im_infi_addr_sync_log SET wait_reason = wait_reason - 'unsure' WHERE msg_no = 'head'")

    if is_many:
        wanted = MessageSearchConditions(ids=[rows["head"]["id"], rows["last"]["id"]])
        skipped = await actions.skip_messages(world.database, wanted, 10, BY)
        assert (skipped.changed, skipped.busy) == (2, 0)
    else:
        assert await actions.skip_message(world.database, rows["head"]["id"], BY, though_touched=True)
    await settle(world)

    rows = await load_by_number(world)
    assert [rows[each]["proc_flag"] for each in ("head", "next", "last")] == ["Y", "Y", "Y"]
    assert rows["next"]["retry_times"] == 0
    assert (rows["last"]["reason"] is None) == (not is_many)


async def test_who_queues_goes_on_when_its_head_is_skipped(world: CycleHarness) -> None:
    """One that stopped halfway holds the others until a person decides; they lose no try by it."""
    await world.publish([create("a", 1), create("b", 2), create("c", 3)])
    await settle(world)
    await world.publish([swap("head", 1, 2), swap("next", 2, 3)])
    world.modules.broken = {(Module.OD, 1)}
    for _ in range(5):
        await world.cycle()
        await world.make_all_due()
    rows = await load_by_number(world)
    assert (rows["head"]["retry_times"], rows["next"]["retry_times"]) == (world.settings.failed_cycles_max, 0)
    assert rows["next"]["wait_reason"] == {"kind": "behind", "behind": rows["head"]["id"]}
    await world.cycle()
    world.modules.broken = set()

    assert await actions.skip_message(world.database, rows["head"]["id"], BY, though_touched=True)
    await world.cycle()

    assert (await load_by_number(world))["next"]["proc_flag"] == "Y"


async def test_a_chain_is_tried_again_by_one_action(world: CycleHarness) -> None:
    """All that its addresses link, in the order of receipt, and nothing else."""
    await world.publish([create("a", 1), create("d", 4), create("x", 8)])
    await world.publish([swap("s", 1, 2), swap("t", 2, 3), swap("u", 3, 4), swap("other", 8, 9)])
    await settle(world)
    rows = await load_by_number(world)
    retries = world.settings.failed_cycles_max
    assert {rows[each]["retry_times"] for each in ("s", "t", "u", "other")} == {retries}

    changed = await actions.retry_linked_messages(world.database, rows["u"]["id"], BY)

    rows = await load_by_number(world)
    assert (changed.changed, changed.busy, changed.remaining) == (3, 0, 0)
    assert [rows[each]["retry_times"] for each in ("s", "t", "u", "other")] == [0, 0, 0, retries]
    noted = await world.fetch("SELECT who, action, log_id, reason FROM addr_audit ORDER BY log_id")
    assert [tuple(row) for row in noted] == [("ann", "retry", rows[each]["id"], BY.reason) for each in ("s", "t", "u")]


async def test_a_chain_that_is_too_long_is_retried_by_age(world: CycleHarness) -> None:
    """Of the nearest ones, the last swap was applied, and the one before it refused as overtaken for good."""
    await world.publish([create(f"c{uprn}", uprn) for uprn in range(1, 5)])
    await settle(world)
    await world.publish([swap("s", 1, 2), swap("t", 2, 3), swap("u", 3, 4)])
    await world.fetch(
        "UPDATE im_infi_addr_sync_log SET proc_flag = 'N', retry_times = 9, next_attempt_at = now(), "
        "wait_reason = jsonb_build_object('kind', 'failed') WHERE proc_flag IS NULL"
    )
    last = (await load_by_number(world))["u"]["id"]

    refused = await actions.retry_linked_messages(world.database, last, BY, limit=2)

    assert (refused.changed, refused.busy, refused.remaining) == (0, 0, 3)
    rows = await load_by_number(world)
    assert {rows[each]["retry_times"] for each in ("s", "t", "u")} == {9}
    assert await world.fetch("SELECT FROM addr_audit") == []
    for left in (1, 0):
        part = await actions.retry_messages(world.database, MessageSearchConditions(), 2, BY)
        assert (part.changed, part.remaining) == (1 + left, left)
        await settle(world)
    rows = await load_by_number(world)
    assert {rows[each]["proc_flag"] for each in ("s", "t", "u")} == {"Y"}
    live = world.modules.books[Module.ED].live
    assert [live[uprn][0] - 1_000 for uprn in range(1, 5)] == [2, 3, 4, 1]


@pytest.mark.parametrize("retries", [1, 3])
async def test_a_swap_that_was_overtaken_is_not_tried_for_ever(world: CycleHarness, retries: int) -> None:
    """It waits for a person at once: no further try can succeed."""
    change_settings(world, failed_cycles_max=retries)
    await world.publish([create("a", 1), create("c", 3), swap("old", 1, 2)])
    await settle(world)
    await world.publish([swap("young", 1, 3)])
    await settle(world)
    await world.publish([create("b", 2)])
    await settle(world)

    old = (await load_by_number(world))["old"]
    assert (old["proc_flag"], old["retry_times"], old["wait_reason"]["kind"]) == ("N", retries, "overtaken")
    assert old["wait_reason"]["behind"] == (await load_by_number(world))["young"]["id"]
    await world.make_all_due()
    await world.cycle()
    assert world.cycles[-1].plan.loaded == 0
