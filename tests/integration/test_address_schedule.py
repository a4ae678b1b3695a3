"""The schedule of cycles: one run at a time, none while it is paused, and the next run completes what was left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from temporalio.client import Client, ScheduleHandle, ScheduleOverlapPolicy

from domain.addresses import names
from domain.addresses.activity_models import AddressCycleStatus
from domain.addresses.messages import PublishedMessage, Topic
from infra.database import Database
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssScenario
from sims.oss.server import Oss, running_oss
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.support import modules as module_peers
from tests.support.modules import call_fault
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.addresses import handle as addresses_handle

pytestmark = pytest.mark.stack

STEP_MESSAGES = 5


@dataclass(frozen=True)
class Installation:
    """A schedule, a worker and four modules."""

    engine: Client
    schedule: ScheduleHandle
    database: Database
    oss: Oss

    async def publish(self, count: int, first: int = 1) -> None:
        """CreateUpdates, each of an address of its own."""
        said = [{"uprn": uprn, "address_id": uprn, "record": {}} for uprn in range(first, first + count)]
        await MessageLogAndQuarantineWriter(self.database, 1_000).store_messages_or_quarantine_them(
            [
                DeliveredMessage(
                    Topic.CREATE_UPDATE, PublishedMessage(message_id=str(each["uprn"]), data=msgspec.json.encode(each))
                )
                for each in said
            ]
        )

    async def count_unfinished_messages(self) -> int:
        """How many messages are not done."""
        query = "SELECT count(*) FROM im_infi_addr_sync_log WHERE proc_flag IS DISTINCT FROM 'Y'"
        async with self.database.connection() as connection:
            return int(await connection.fetchval(query))

    async def is_empty(self) -> bool:
        """Whether all is done."""
        return await self.count_unfinished_messages() == 0

    async def running(self) -> list[str]:
        """The runs of the schedule that are going on."""
        found = (await self.schedule.describe()).info.running_actions
        return [each.workflow_id for each in found if hasattr(each, "workflow_id")]

    async def wait_until_processing(self, published: int) -> str:
        """Wait until a run is in the middle of as many messages as were published; return it."""

        async def under_way() -> str:
            runs = await self.running()
            return runs[0] if runs and 0 < await self.count_unfinished_messages() < published else ""

        return await eventually(under_way)

    def hurry(self) -> None:
        """Let the modules answer at once from now on."""
        self.oss.set(OssScenario())


@pytest.fixture
async def installation(settings: Settings, database: Database, tmp_path: Path) -> AsyncIterator[Installation]:
    """Modules that are slow after a few steps, until they are to hurry: a run does not end before it is looked at."""
    async with running_oss(tmp_path) as oss:
        oss.set(OssScenario(rules=(call_fault(OssAction.SLOW, seconds=5, skip=3 * STEP_MESSAGES),)))
        peers = module_peers.module_settings(oss.base, tmp_path)
        own = settings.model_copy(
            update={"addresses": peers.model_copy(update={"group_messages_max": STEP_MESSAGES, "step_concurrency": 1})}
        )
        async with running_worker(own, [names.QUEUE]) as running:
            engine = running.services.engine
            schedule = await addresses_handle.create_or_update_cycle_schedule(engine, 3_600)
            yield Installation(engine, schedule, database, oss)


async def test_one_run_at_a_time(installation: Installation) -> None:
    """A12: who triggers it meanwhile starts none beside it, and none is missed."""
    await installation.publish(100)
    await installation.schedule.trigger()
    run = await installation.wait_until_processing(100)

    await installation.schedule.trigger()
    await installation.publish(10, first=201)
    await installation.schedule.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ONE)

    assert await installation.running() == [run]
    installation.hurry()
    await eventually(installation.is_empty)
    for module in installation.oss.modules.values():
        assert len(module.list_applied()) == len(set(module.list_applied())) == 110


async def test_a_pause_ends_what_runs_after_its_cycle(installation: Installation) -> None:
    """What came in meanwhile waits until the schedule goes on."""
    await installation.publish(50)
    await installation.schedule.trigger()
    run = await installation.wait_until_processing(50)

    await installation.schedule.pause()
    await installation.publish(5, first=201)
    installation.hurry()
    handle = installation.engine.get_workflow_handle(run, result_type=AddressCycleStatus)
    status: AddressCycleStatus = await handle.result()

    assert (status.paused, status.totals.done, await installation.count_unfinished_messages()) == (True, 50, 5)
    await installation.schedule.unpause()
    await installation.schedule.trigger()
    await eventually(installation.is_empty)


async def test_the_next_run_takes_up_what_a_terminated_one_had_begun(installation: Installation) -> None:
    """A12: under the id of its cycle, before anything else, and no module applies anything twice."""
    await installation.publish(100)
    await installation.schedule.trigger()
    run = await installation.wait_until_processing(100)

    await installation.engine.get_workflow_handle(run).terminate()
    await installation.publish(10, first=201)
    installation.hurry()
    await installation.schedule.trigger()
    await eventually(installation.is_empty)

    async with installation.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT uprn_1, cycle_id FROM im_infi_addr_sync_log_his UNION ALL "
            "SELECT uprn_1, cycle_id FROM im_infi_addr_sync_log"
        )
    by_cycle: dict[str, list[int]] = {}
    for row in rows:
        by_cycle.setdefault(row["cycle_id"], []).append(row["uprn_1"])
    assert sorted(map(len, by_cycle.values())) == [10, 100]
    for module in installation.oss.modules.values():
        assert sorted(map(int, module.live())) == [*range(1, 101), *range(201, 211)]
        assert len(module.list_applied()) == 110
