"""The host that has the file: when it is gone another one sends, and when GSE is gone everybody waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dev.embedded.ports import reserve_ports
from infra.settings import Settings
from sims.gse.disks import HostDisks
from sims.gse.scenario import GseAction, GseCall, GseRule, GseScenario
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from tests.support.api import running_api
from tests.support.pace import measure_pace
from tests.support.transfers import QUICK, Transfers, running_transfers, window_begins, with_gse
from tests.support.waiting import eventually
from tests.support.worker import RunningWorker, running_worker

pytestmark = pytest.mark.stack


def on_host(settings: Settings, name: str) -> Settings:
    """The settings of a worker on another host: GSE knows it by another id, and it has a cache of its own."""
    gse = settings.gse.model_copy(update={"source_agent_id": name, "cache_folder": settings.data_dir / name})
    engine = settings.engine.model_copy(update={"graceful_shutdown_seconds": 0.1})
    return settings.model_copy(update={"gse": gse, "engine": engine})


@asynccontextmanager
async def two_hosts(
    settings: Settings, scenario: GseScenario, window_seconds: int = 1
) -> AsyncIterator[tuple[Transfers, RunningWorker, Settings]]:
    """One host that works, and the settings of another."""
    disks = HostDisks(settings.data_dir / "hosts", links=True)
    world = GseWorld(scenario, disks)
    async with running_gse(world) as gse:
        settings = with_gse(settings, gse, settings.data_dir, host_wait_seconds=1.0, window_seconds=window_seconds)
        async with running_api(settings) as api_client, running_worker(on_host(settings, "0:first")) as first:
            project_id, key = await api_client.make_project()
            transfers = Transfers(api_client, world, disks, first, project_id, key)
            await transfers.store()
            yield transfers, first, on_host(settings, "0:second")


async def test_when_the_host_is_gone_another_fetches_and_sends_the_rest(settings: Settings) -> None:
    """Who has the file already is not sent it again; the first host's task is given up before the second begins."""
    stuck = GseRule(action=GseAction.STUCK, agent="late-.*", times=1)
    scenario = QUICK.model_copy(update={"rules": (stuck,)})
    async with two_hosts(settings, scenario) as (transfers, first, second):
        task_ids = await transfers.join_many(["early-1", "early-2", "late-1", "late-2"])
        for early in task_ids[:2]:
            await transfers.wait_for_end(early)
        await first.stop()
        async with running_worker(second):
            ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]
        tasks = list(transfers.world.tasks.values())

        assert {end["status"] for end in ends} == {"Success"}
        assert [task.source.agent for task in tasks] == ["0:first", "0:second"]
        assert transfers.sends == {("early-1", ""): 1, ("early-2", ""): 1, ("late-1", ""): 2, ("late-2", ""): 2}
        assert tasks[0].targets["late-1", ""].code == 126


@pytest.mark.long
async def test_a_host_that_dies_before_it_sends_costs_seconds(settings: Settings) -> None:
    """The first host fetches the file in the window; another one does when no worker there takes the shards."""
    async with two_hosts(settings, QUICK, window_seconds=8) as (transfers, first, second):
        await window_begins(8)
        task_id = await transfers.join("agent-1")
        fetched = first.services.settings.gse.cache_folder / "2"
        await eventually(lambda: fetched.exists() and any(fetched.iterdir()))
        await first.stop()
        async with running_worker(second):
            end = await transfers.wait_for_end(task_id)

        assert end["status"] == "Success"
        assert transfers.sends == {("agent-1", ""): 1}


async def test_a_worker_told_to_stop_notes_the_gse_task_that_it_is_asking_for(settings: Settings) -> None:
    """Also when GSE answers late: the next one continues that task, and no target is sent the file twice."""
    late = GseRule(action=GseAction.SLOW, calls=frozenset({GseCall.TRANSFER}), seconds=2.0, times=1)
    async with two_hosts(settings, QUICK.model_copy(update={"rules": (late,)})) as (transfers, first, _):
        task_ids = await transfers.join_many(["agent-1", "agent-2"])
        await eventually(lambda: bool(transfers.world.tasks))
        await first.stop()
        async with running_worker(first.services.settings):
            ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]

        assert {end["status"] for end in ends} == {"Success"}
        assert transfers.sends == {("agent-1", ""): 1, ("agent-2", ""): 1}


async def gse_is_down(settings: Settings, seconds: float) -> tuple[float, dict[str, int], set[str]]:
    """Stop GSE during a transfer for a while; return how long it took, what was sent, and how targets ended."""
    slow = QUICK.model_copy(update={"download_seconds": 3.0})
    disks = HostDisks(settings.data_dir / "hosts", links=True)
    world = GseWorld(slow, disks)
    with reserve_ports({}) as ports:
        port = ports.reserve("gse")
        settings = with_gse(settings, f"http://127.0.0.1:{port}", settings.data_dir)
        return await _shipped_through_an_outage(settings, world, disks, port, seconds)


async def _shipped_through_an_outage(
    settings: Settings, world: GseWorld, disks: HostDisks, port: int, seconds: float
) -> tuple[float, dict[str, int], set[str]]:
    async with running_api(settings) as api_client, running_worker(settings) as running:
        project_id, key = await api_client.make_project()
        transfers = Transfers(api_client, world, disks, running, project_id, key)
        await transfers.store()
        began = time.monotonic()
        async with running_gse(world, port):
            task_ids = await transfers.join_many([f"agent-{n}" for n in range(20)])
            await eventually(lambda: bool(world.tasks))
        await asyncio.sleep(seconds)
        async with running_gse(world, port):
            ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]
        took = time.monotonic() - began
    return took, {agent_id: count for (agent_id, _), count in transfers.sends.items()}, {end["status"] for end in ends}


async def test_a_gse_that_is_down_costs_its_time_and_no_task(settings: Settings) -> None:
    """No target is sent the file twice, and none fails."""
    took, sends, ends = await gse_is_down(settings, 6.0)

    assert ends == {"Success"}
    assert set(sends.values()) == {1}
    assert took < 6 + 90


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_a_gse_that_is_down_for_three_minutes_costs_three_minutes(settings: Settings) -> None:
    """The same at full length."""
    took, sends, ends = await gse_is_down(settings, 180.0)

    assert ends == {"Success"}
    assert set(sends.values()) == {1}
    assert took < 180 + 45


async def test_a_file_that_cannot_be_had_in_time_ends_as_timeout_with_the_cause(settings: Settings) -> None:
    """The repository's last answer is shown, not only the timeout."""
    repository = "http://127.0.0.1:9/{biz_id}/{signature}"
    guard = settings.guard.model_copy(update={"allow": ["127.0.0.1:9"]})
    settings = settings.model_copy(update={"guard": guard})
    async with running_transfers(settings, timeout_seconds=5.0 * measure_pace(), repository=repository) as transfers:
        end = await transfers.wait_for_end(await transfers.join("agent-1"))

    assert (end["status"], end["reason"]) == ("Timeout", "file_unavailable")
    assert "127.0.0.1:9" in end["message"]
