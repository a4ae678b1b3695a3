"""The bench of tasks: its load comes when it is due, its cycle loses nothing, and its figures say what was reached."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from bench import load
from bench.tasks import cycle, figures, library, single
from bench.tasks.contenders import TaskContender
from bench.tasks.rounds import Phase, TaskRound
from bench.tasks.single import SingleClient


@dataclass
class FaultyQueue:
    """A queue that does what a plan of faults lets it."""

    waiting: deque[str] = field(default_factory=deque)
    created: int = 0
    done: list[str] = field(default_factory=list)
    loses: int = 0
    """Tasks that it loses."""
    refuses: int = 0
    """Sets that it refuses."""
    slow_seconds: float = 0.0

    async def create(self, request: web.Request) -> web.Response:
        """A number."""
        self.created += 1
        if self.loses:
            self.loses -= 1
        else:
            self.waiting.append(str(self.created))
        return web.json_response({"code": 0, "task_id": str(self.created)})

    async def hold(self, request: web.Request) -> web.Response:
        """The first."""
        limit = (await request.json())["limit"]
        held = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
        return web.json_response({"code": 0, "task_list": [{"task_id": each, "lease": 1} for each in held]})

    async def set(self, request: web.Request) -> web.Response:
        """Done."""
        if self.refuses:
            self.refuses -= 1
            return web.json_response({"code": 8041, "msg": "FAIL_REASON::no"})
        self.done.append((await request.json())["task_data"]["task_id"])
        return web.json_response({"code": 0})

    async def get(self, request: web.Request) -> web.Response:
        """After a while."""
        await asyncio.sleep(self.slow_seconds)
        return web.json_response({"code": 0})


@asynccontextmanager
async def serve_queue(queue: FaultyQueue) -> AsyncIterator[str]:
    """Where it is served."""
    app = web.Application()
    app.router.add_post("/v1/create_task", queue.create)
    app.router.add_post("/v1/hold_tasks", queue.hold)
    app.router.add_post("/v1/set_task", queue.set)
    app.router.add_get("/v1/get_task", queue.get)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def run_cycle(queue: FaultyQueue, monkeypatch: pytest.MonkeyPatch) -> cycle.CycleOutcome:
    """A short cycle at a queue."""
    monkeypatch.setattr(cycle, "SPARE_SECONDS", 2.0)
    async with serve_queue(queue) as base:
        plan = cycle.CyclePlan(
            base=base,
            headers={},
            create='{"task_data": {}}',
            hold='{"limit": 5}',
            type="bench",
            limit=5,
            connections=8,
            seconds=0.2,
        )
        return await asyncio.to_thread(cycle.run, plan)


async def test_a_cycle_does_each_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was created is done when it ends, and every answer is in the report."""
    queue = FaultyQueue()

    done = await run_cycle(queue, monkeypatch)

    assert done.faults == []
    assert (done.tasks, len(set(queue.done)), list(queue.waiting)) == (queue.created, queue.created, [])
    assert sum(done.report.statuses.values()) >= 2 * queue.created


@pytest.mark.parametrize(("queue", "lost", "faults"), [(FaultyQueue(loses=1), 1, 0), (FaultyQueue(refuses=1), 0, 1)])
async def test_a_cycle_tells_of_planted_faults(
    queue: FaultyQueue, lost: int, faults: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP says 200 all the time; a task that is lost or refused is reported nevertheless."""
    done = await run_cycle(queue, monkeypatch)

    assert (done.created - done.tasks, len(done.faults)) == (lost, faults)
    assert all("8041" in each for each in done.faults)


async def read_at_rate(
    queue: FaultyQueue, folder: Path, count: int, per_second: float, connections: int
) -> load.Report:
    """Reads at a rate."""
    async with serve_queue(queue) as base:
        (folder / "requests").write_text("\n".join([json.dumps(["GET", "/v1/get_task", None])] * count))
        plan = load.Plan(
            base=base,
            headers={},
            requests=folder / "requests",
            answers=folder / "answers",
            connections=connections,
            per_second=per_second,
        )
        return await asyncio.to_thread(load.run, plan)


async def test_requests_come_when_they_are_due(tmp_path: Path) -> None:
    """Not sooner, though there are connections and answers enough."""
    report = await read_at_rate(FaultyQueue(), tmp_path, 40, 100.0, 8)

    assert report.statuses == {200: 40}
    assert report.ended_at - report.begun_at >= 39 / 100


async def test_waiting_for_a_connection_is_part_of_an_answers_time(tmp_path: Path) -> None:
    """A queue that stalls must not slow the load down and look fast: the tenth has waited for the nine before."""
    report = await read_at_rate(FaultyQueue(slow_seconds=0.05), tmp_path, 10, 1_000.0, 1)

    assert report.latencies_ms[-1] >= 9 * 50


class BareWorkflow:
    """Takes updates at once."""

    async def execute_update(self, _update: object) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("queue", "asked"), [(FaultyQueue(), 9), (FaultyQueue(loses=1), 0), (FaultyQueue(refuses=1), 0)]
)
async def test_one_client_has_its_own_task_each_time(queue: FaultyQueue, asked: int) -> None:
    """Each request is measured with an update beside it; a queue that loses or refuses a task is not measured."""
    async with serve_queue(queue) as base, aiohttp.ClientSession() as session:
        contender = TaskContender("faulty", base, {}, session)
        run = single._run_turns(contender, cast("Any", BareWorkflow()), 3)
        if not asked:
            with pytest.raises(single.WrongAnswer):
                await run
            return
        took = await run
    assert [len(each) for each in (*took.requests.values(), took.updates)] == [3, 3, 3, asked]
    assert queue.done == ["1", "2", "3"]


PHASE = Phase(
    requests=8_000, tasks=8_000, seconds=1.0, latencies_ms=[1.0] * 99 + [50.0], cpu_seconds={"api": 0.4, "engine": 0.4}
)
HOLD = replace(PHASE, requests=2_500, tasks=12_500)
LATE = replace(PHASE, latencies_ms=[20.1] * 99 + [50.0])
SLOW = replace(PHASE, latencies_ms=[1.0] * 90 + [101.0] * 10)
FULL = {"create": PHASE, "get": PHASE, "hold": HOLD, "set": PHASE}
RATES = dict.fromkeys(FULL, 3_000.0)
LIBRARY = library.LibraryOutcome(stages=4_000, seconds=1.0, pickup_ms=20.0, missing=0)
GROWN = replace(PHASE, seconds=2.0)
SINGLE = SingleClient({"create": [6.0, 90.0, 5.0], "hold": [5.0], "set": [5.0]}, [4.0])
ROUND = TaskRound(
    FULL, FULL, RATES, PHASE, wrong_answers=0, lost=0, grown=GROWN, library=LIBRARY, single=SINGLE,
    largest_process_mb=400.0,
)  # fmt: skip


def compute_which_hold(**changes: Any) -> dict[str, bool | None]:
    """Which figures hold when ours is changed so and the others are half as fast."""
    slower = replace(ROUND, cycle=replace(PHASE, seconds=2.5))
    results = {"ours": replace(ROUND, **changes), "seed schema": slower, "procrastinate": slower, "RQ": slower}
    return {each.name: each.holds for each in figures.figures(results, 1_000_000) if each.reach}


def test_what_is_reached_is_told() -> None:
    """Each figure that the issue names, and nothing else, is judged."""
    holds = compute_which_hold()

    assert holds.pop("ours ÷ procrastinate: full cycle") is False
    assert len(holds) == 17
    assert all(holds.values())


@pytest.mark.parametrize(
    ("changes", "figure"),
    [
        ({"half": {**FULL, "set": LATE}}, "ours: p50 of set at half load"),
        ({"half": {**FULL, "get": SLOW}}, "ours: p99 of get at half load"),
        ({"wrong_answers": 1}, "ours: wrong answers"),
        ({"lost": 1}, "ours: tasks miscounted"),
        ({"library": LIBRARY.model_copy(update={"seconds": 1.01})}, "library worker ÷ full cycle"),
        (
            {"library": LIBRARY.model_copy(update={"pickup_ms": 20.1})},
            "library worker: a task that comes to an idle queue",
        ),
        ({"cycle": replace(PHASE, seconds=1.3)}, "ours ÷ seed schema: full cycle"),
        (
            {"single": SingleClient({"create": [6.0], "hold": [6.1], "set": [6.0]}, [4.0])},
            "one client: hold ÷ a bare update",
        ),
        ({"largest_process_mb": 400.1}, "largest process of ours"),
    ],
)
def test_what_is_not_reached_is_told(changes: dict[str, Any], figure: str) -> None:
    """One by one."""
    assert [
        name for name, holds in compute_which_hold(**changes).items() if not holds and "procrastinate" not in name
    ] == [figure]


def test_growth_stands_beside_the_fresh_cycle() -> None:
    """Half as fast among ended tasks."""
    [grown] = [each for each in figures.figures({"ours": ROUND}, 9) if each.name == "ours: full cycle, grown ÷ fresh"]

    assert grown.value == 0.5
