"""What a module applied without an answer is found later, although the message was superseded or skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from activities.addresses import delivery
from dev.embedded.stack import EmbeddedStack
from domain.addresses import names
from domain.addresses.activity_models import CarriedCycleTotals
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.database import Database
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssScenario
from sims.oss.server import running_oss
from stores.addresses import actions
from stores.addresses.actions import ActorWithReason
from tests.support import modules as module_peers
from tests.support.address_world import CycleHarness, Fault
from tests.support.modules import call_fault
from tests.support.worker import running_worker
from workflows.addresses.cycle import AddressCycle

pytestmark = pytest.mark.stack

Said = tuple[Topic, str, dict[str, Any]]

GONE, NEW = 1_001, 1_002
# A cycle asks ED, IM, WFM and OD, in this order.
WFM_LOST = [None, None, Fault.LOST, None]
WFM_LATE = [None, None, Fault.LATE, None]
WFM_AWAY = [None, None, Fault.AWAY, None]


@pytest.fixture
async def world(stack: EmbeddedStack, database_url: str) -> AsyncIterator[CycleHarness]:
    """One address in four modules; WFM has orders of it in flight."""
    settings = stack.build_settings().database.model_copy(update={"url": SecretStr(database_url)})
    world = CycleHarness(settings, failed_cycles_max=1)
    await world.begin()
    await world.publish([create("first", GONE)])
    await world.cycle()
    world.modules.books[Module.WFM].busy = {GONE}
    yield world
    await world.database.close()


def create(number: str, address_id: int) -> Said:
    """UPRN 1 gets an address."""
    return Topic.CREATE_UPDATE, number, {"uprn": 1, "address_id": address_id, "record": {}}


def delete(number: str) -> Said:
    """UPRN 1 loses its address."""
    return Topic.DELETE, number, {"uprn": 1}


async def cycle(world: CycleHarness, *said: Said, faults: list[Fault | None] | None = None) -> None:
    """Messages, and a cycle."""
    await world.publish(said)
    world.modules.faults = list(faults or [])
    await world.cycle()


async def list_deletes(world: CycleHarness) -> list[tuple[int, str, str]]:
    """Addresses that are listed, by which message's number, and whether WFM has orders in flight."""
    numbers = {row["id"]: row["msg_no"] for row in (await world.rows()).values()}
    rows = await world.fetch("SELECT * FROM addr_logical_deletes WHERE purged_at IS NULL")
    return [(row["address_id"], numbers[row["log_id"]], row["wfm_flag"]) for row in rows]


async def unheard(world: CycleHarness) -> list[str]:
    """Messages that are done, and that the log keeps all the same."""
    rows = await world.fetch("SELECT msg_no FROM im_infi_addr_sync_log WHERE proc_flag = 'Y' ORDER BY msg_no")
    return [row["msg_no"] for row in rows]


async def test_a_delete_that_a_create_overtakes_is_heard_of(world: CycleHarness) -> None:
    """A11: it was given up, and no one will send it again."""
    await cycle(world, delete("gone"), faults=WFM_LOST)
    assert await list_deletes(world) == []

    await cycle(world, create("new", NEW))

    assert await list_deletes(world) == [(GONE, "gone", "Y")]
    assert await unheard(world) == []


async def test_a_delete_that_a_create_supersedes_is_heard_of(world: CycleHarness) -> None:
    """A11: it was going to be sent again."""
    world.settings = world.settings.model_copy(update={"failed_cycles_max": 5})
    await cycle(world, delete("gone"), faults=WFM_LOST)
    await cycle(world, create("new", NEW))

    assert await list_deletes(world) == [(GONE, "gone", "Y")]
    assert await unheard(world) == []


async def test_a_delete_that_other_modules_find_stale_is_heard_of(world: CycleHarness) -> None:
    """A11: the module that may have applied it is away when the others know better."""
    world.settings = world.settings.model_copy(update={"failed_cycles_max": 5})
    await cycle(world, delete("gone"), faults=[Fault.AWAY, None, Fault.LOST, None])
    world.modules.books[Module.ED].record_seq[1] = 1_000
    await world.make_all_due()
    await cycle(world, faults=[None, Fault.AWAY, Fault.AWAY])
    assert (await unheard(world), await list_deletes(world)) == (["gone"], [])

    await cycle(world)

    assert (await unheard(world), await list_deletes(world)) == ([], [(GONE, "gone", "Y")])


async def test_a_delete_that_somebody_skips_is_heard_of(world: CycleHarness) -> None:
    """A11: a person gave it up, and the module had it already."""
    await cycle(world, delete("gone"), faults=WFM_LOST)
    [row] = [row for row in (await world.rows()).values() if row["msg_no"] == "gone"]
    assert await actions.skip_message(
        world.database, row["id"], ActorWithReason("ann", "it will not be"), though_touched=True
    )

    await cycle(world)

    assert await list_deletes(world) == [(GONE, "gone", "Y")]
    [row] = [row for row in (await world.rows()).values() if row["msg_no"] == "gone"]
    assert "unsure" not in row["wait_reason"]


async def test_a_create_that_took_an_address_away_unheard_is_heard_of(world: CycleHarness) -> None:
    """A11: it gave the UPRN to another address."""
    await cycle(world, create("other", 1_003), faults=WFM_LOST)
    await cycle(world, create("new", NEW))

    assert await list_deletes(world) == [(GONE, "other", "Y")]


async def test_nothing_is_listed_of_what_never_took_effect(world: CycleHarness) -> None:
    """It is not sent again to find out, and the log keeps it no longer than it must."""
    await cycle(world, delete("gone"), faults=WFM_AWAY)
    world.modules.books[Module.WFM].busy = set()
    effects = world.count_effects()
    await cycle(world, create("new", NEW))

    assert (await unheard(world), await list_deletes(world)) == ([], [])
    sent = [number for _, number in (world.count_effects() - effects)]
    assert len(sent) == len(Module)
    assert len(set(sent)) == 1


async def test_what_may_still_take_effect_is_asked_about_until_it_cannot(world: CycleHarness) -> None:
    """A call that was given up may arrive until a younger one has."""
    world.settings = world.settings.model_copy(update={"failed_cycles_max": 5})
    await cycle(world, delete("gone"), faults=WFM_LATE)
    late, world.modules.on_the_way = world.modules.on_the_way, []
    await cycle(world, create("new", NEW), faults=WFM_AWAY)
    assert (await unheard(world), await list_deletes(world)) == (["gone"], [])

    world.modules.on_the_way = late
    await cycle(world)

    assert (await unheard(world), await list_deletes(world)) == ([], [(GONE, "gone", "Y")])


async def test_an_address_that_came_back_is_not_listed(world: CycleHarness) -> None:
    """The module that had put it away has it live again."""
    await cycle(world, delete("gone"), faults=WFM_LOST)
    await cycle(world, create("back", GONE))

    assert (await unheard(world), await list_deletes(world)) == ([], [])


async def test_a_module_that_is_away_is_asked_again(world: CycleHarness) -> None:
    """As often as it takes, and another one that died while asking changes nothing."""
    await cycle(world, delete("gone"), faults=WFM_LOST)
    world.modules.faults = []
    await world.publish([create("new", NEW)])
    # Four modules apply it; then WFM is asked, and is away.
    world.modules.faults = [None] * len(Module) + [Fault.AWAY]
    await world.cycle()
    assert (await unheard(world), await list_deletes(world)) == (["gone"], [])

    world.modules.faults = [None, Fault.LOST]
    await delivery.confirm_unconfirmed_messages(world.database, world.modules)
    assert (await unheard(world), await list_deletes(world)) == (["gone"], [])
    await delivery.confirm_unconfirmed_messages(world.database, world.modules)

    assert await list_deletes(world) == [(GONE, "gone", "Y")]


async def test_a_module_that_says_nothing_is_not_asked_page_after_page(
    world: CycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much there is to ask it; another module is asked about all that concerns it."""
    monkeypatch.setattr(delivery, "UNCONFIRMED_PAGE", 1)
    await cycle(world, delete("gone"), faults=WFM_LOST)
    await cycle(world, (Topic.DELETE, "there-too", {"uprn": 2}), faults=WFM_LOST)
    await cycle(world, (Topic.DELETE, "elsewhere", {"uprn": 3}), faults=[None, None, None, Fault.LOST])
    await world.publish([create("new", NEW)])
    await world.publish([(Topic.CREATE_UPDATE, f"new-{n}", {"uprn": n, "address_id": 9, "record": {}}) for n in (2, 3)])
    world.modules.faults = [None] * len(Module) + [Fault.AWAY]
    await world.cycle()
    assert await unheard(world) == ["gone", "there-too"]

    await delivery.confirm_unconfirmed_messages(world.database, world.modules)

    assert await list_deletes(world) == [(GONE, "gone", "Y")]
    assert await world.fetch("SELECT 1 FROM im_infi_addr_sync_log WHERE wait_reason IS NOT NULL") == []


async def test_large_messages_are_asked_about_in_parts(world: CycleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are in memory at a time as fit, and one at least."""

    def creates(name: str) -> list[Said]:
        return [(Topic.CREATE_UPDATE, f"{name}-{n}", {"uprn": n, "address_id": n, "record": {}}) for n in (2, 3, 4)]

    await cycle(world, *creates("old"), faults=WFM_LOST)
    await world.publish(creates("new"))
    world.modules.faults = [None] * len(Module) + [Fault.AWAY]
    await world.cycle()
    assert await unheard(world) == ["old-2", "old-3", "old-4"]

    monkeypatch.setattr("stores.addresses.delivery.PART_MAX_BYTES", 0, raising=False)
    world.modules.calls.clear()
    await delivery.confirm_unconfirmed_messages(world.database, world.modules)

    assert [(module, len(op_ids)) for module, op_ids in world.modules.calls] == [(Module.WFM, 1)] * 3
    assert await world.fetch("SELECT 1 FROM im_infi_addr_sync_log WHERE wait_reason IS NOT NULL") == []


async def test_a_run_without_work_asks_about_what_was_not_heard(
    settings: Settings, database: Database, tmp_path: Any
) -> None:
    """Over HTTP: the module answered nothing until long after the last message."""
    async with running_oss(tmp_path) as oss:
        peers = module_peers.module_settings(oss.base, tmp_path, retries=0, timeout_seconds=5, breaker_seconds=0)
        addresses = peers.model_copy(update={"failed_cycles_max": 1})
        async with running_worker(settings.model_copy(update={"addresses": addresses}), [names.QUEUE]) as running:
            engine, inbox = running.services.engine, CycleHarness(settings.database)

            async def run(*said: Said) -> None:
                await inbox.publish(said)
                await engine.execute_workflow(
                    AddressCycle.run, CarriedCycleTotals(), id=names.CYCLE_SCHEDULE, task_queue=names.QUEUE
                )

            await run(create("first", GONE))
            oss.modules[Module.WFM].begin_orders([GONE])
            oss.set(OssScenario(rules=(call_fault(OssAction.LOST, modules=frozenset({"wfm"})),)))
            await run(delete("gone"))
            await run(create("new", NEW))
            assert await list_deletes(inbox) == []
            oss.set(OssScenario())
            await inbox.retry()
            await run()
            await run()
            found = await list_deletes(inbox)
            await inbox.database.close()

    assert found == [(GONE, "gone", "Y")]
