"""A million tasks, through one type and pending at once: all is counted right, and nothing grows without bound."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

import aiohttp
import psutil
import pytest

from dev.embedded import components
from dev.local import list_api_names, list_worker_names
from haulage.tasks import NewTask, Status, TaskResult, Tasks, TaskType
from infra import log
from tests.support.caller import running_caller
from tests.support.deployment import Deployment
from tests.support.waiting import eventually

FEW = 5_000
MANY = pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(2_400)])
BATCH = 1_000
CREATORS, WORKERS = 4, 6
LOOK_SECONDS = 1.0
MEGABYTE = 1_000_000

PROCESS_MAX_MB = 600
"""Of a process of Haulage, at any moment."""
ENGINE_BYTES_A_TASK = 1_000
"""Of the engine's file; it keeps the histories of closed runs for its retention."""
ENGINE_BASE_MB = 60
SLOWER_MAX = 3.0
"""How much longer a look at a task may take in the second half than in the first, beside the same load."""
LITTLE_SECONDS = 0.5
"""And no difference below this counts."""


@dataclass
class WatchedQueue:
    """A project's way to a type that takes whatever comes, and what was seen meanwhile."""

    type: str
    tasks: Tasks
    session: aiohttp.ClientSession
    engine_bytes: int = 0
    """Of its file, at the beginning."""
    peak_mb: float = 0.0
    looks: list[float] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("total", [pytest.param(FEW, marks=pytest.mark.long), MANY])
async def test_a_million_tasks_go_through_one_type(deployment: Deployment, total: int) -> None:
    """Created, held and ended at the same time; at the end the archive has them all and only the last lane is open."""
    async with queue(deployment, "through") as queued:
        async with asyncio.TaskGroup() as people:
            people.create_task(_create(queued, total))
            for _ in range(WORKERS):
                people.create_task(_work(queued, total))
        counts = await queued.tasks.counts(queued.type)
        assert (counts.task_count, counts.success, counts.pending, counts.running) == (total, total, 0, 0)
        await eventually(lambda: _lanes(queued, 1))
        _check_bounds(deployment, queued, total)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("total", [FEW, MANY])
@pytest.mark.long
async def test_a_million_tasks_are_pending_at_once(deployment: Deployment, total: int) -> None:
    """They wait in lanes; the most urgent of all is found first, and each task by its id."""
    async with queue(deployment, "pending") as queued:
        await _create(queued, total)
        tasks = queued.tasks
        urgent = await tasks.create(NewTask(task_type=queued.type, task_priority=86_400))
        counts = await tasks.counts(queued.type)
        assert (counts.task_count, counts.pending) == (total + 1, total + 1)
        await eventually(lambda: _knows_first(deployment, queued, urgent))
        first = await tasks.hold(queued.type, limit=1)
        assert [each.task_id for each in first] == [urgent]
        for task_id in queued.ids[:: total // 200]:
            assert (await tasks.get(task_id)).status is Status.PENDING
        _check_bounds(deployment, queued, total)


@asynccontextmanager
async def queue(deployment: Deployment, name: str) -> AsyncIterator[WatchedQueue]:
    """A project of its own and its type; memory and a task are looked at all the time."""
    async with running_caller(deployment) as caller:
        key = caller.session.headers["Authorization"].removeprefix("Bearer ")
        async with Tasks(deployment.api, key) as tasks:
            type_ = f"{name}{secrets.token_hex(4)}"
            await tasks.register(TaskType(task_type=type_, schedule_limit=BATCH, max_processing_time=600))
            queued = WatchedQueue(type_, tasks, caller.session, engine_bytes=_engine_bytes(deployment))
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(_sample_memory(deployment, queued))
                yield queued
                looking.cancel()


async def _sample_memory(deployment: Deployment, queued: WatchedQueue) -> None:
    while True:
        pids = deployment.pids
        used = [psutil.Process(pids[name]).memory_info().rss for name in (*list_api_names(), *list_worker_names())]
        queued.peak_mb = max(queued.peak_mb, max(used) / MEGABYTE)
        if queued.ids:
            began = time.perf_counter()
            await queued.tasks.get(queued.ids[len(queued.looks) * 7_919 % len(queued.ids)])
            queued.looks.append(time.perf_counter() - began)
        await asyncio.sleep(LOOK_SECONDS)


async def _create(queued: WatchedQueue, total: int) -> None:
    batches = iter(range(total // BATCH))

    async def some() -> None:
        for _ in batches:
            made = await queued.tasks.create_many([NewTask(task_type=queued.type, task_content="v" * 64)] * BATCH)
            assert not [each for each in made if each.code]
            queued.ids += [each.task_id for each in made]

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(some())


async def _work(queued: WatchedQueue, total: int) -> None:
    """Hold and end, until all have ended."""
    tasks = queued.tasks
    while True:
        held = await tasks.hold(queued.type, limit=BATCH, wait_seconds=1)
        if held:
            results = [TaskResult(task_id=each.task_id, lease=each.lease, status=Status.SUCCESS) for each in held]
            assert not [each for each in await tasks.set_many(results) if each.code]
        elif (await tasks.counts(queued.type)).success == total:
            return


async def _knows_first(deployment: Deployment, queued: WatchedQueue, urgent: str) -> bool:
    """Return whether all API processes must know by now which lane has the most urgent task."""
    first = """
        SELECT pos, now() - updated_at > interval '1 second' AS is_known FROM task_heads
        WHERE split_part(type, '/', 2) = $1 AND next_order_time IS NOT NULL ORDER BY next_order_time LIMIT 1
        """
    rows = await deployment.fetch(first, queued.type)
    return any(row["is_known"] and row["pos"] == int(urgent.rpartition("_")[2]) for row in rows)


async def _lanes(queued: WatchedQueue, expected: int) -> bool:
    async with queued.session.get("/v1/get_task_lanes", params={"task_type": queued.type}) as answer:
        return len((await answer.json())["lane_list"]) <= expected


def _check_bounds(deployment: Deployment, queued: WatchedQueue, total: int) -> None:
    grown = _engine_bytes(deployment) - queued.engine_bytes
    half = len(queued.looks) // 2
    early, late = (median(looks) if looks else 0.0 for looks in (queued.looks[:half], queued.looks[half:]))
    figures = {"peak_mb": queued.peak_mb, "engine_bytes": grown, "look_early": early, "look_late": late}
    log.get(__name__).info("went_through", tasks=total, **figures)
    assert queued.peak_mb < PROCESS_MAX_MB
    assert grown < ENGINE_BASE_MB * MEGABYTE + total * ENGINE_BYTES_A_TASK
    assert late < SLOWER_MAX * early + LITTLE_SECONDS


def _engine_bytes(deployment: Deployment) -> int:
    folder = deployment.data_dir / components.ENGINE
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
