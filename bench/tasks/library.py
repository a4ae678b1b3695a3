"""`python -m bench.tasks.library`: one process with the library's worker, as it is by default, at trivial tasks.

First all that was created before the clock began, each task in two stages, and each stage counts as a task; then single
tasks that come to a queue at which the worker waits.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

from pydantic import BaseModel

from cli import command
from haulage.tasks import HeldTask, NewTask, NextStage, Tasks, TaskType, Worker

TYPE = "library"
SECOND = "second"
PICKUPS = 41
LEASE_SECONDS = 900


class LibraryPlan(BaseModel):
    """What to do; read from standard input."""

    base: str
    key: str
    tasks: int


class LibraryOutcome(BaseModel):
    """What became of it; written to standard output."""

    stages: int
    seconds: float
    pickup_ms: float
    """From the answer to a create to the begin of the handler, in the middle."""
    missing: int
    """Tasks that did not succeed."""

    @property
    def rate(self) -> float:
        """Stages a second."""
        return self.stages / self.seconds


async def run(plan: LibraryPlan) -> LibraryOutcome:
    """Create, do all, then take single ones."""
    async with Tasks(plan.base, plan.key) as tasks, Tasks(plan.base, plan.key) as creator:
        await tasks.register(TaskType(task_type=TYPE, max_processing_time=LEASE_SECONDS))
        await tasks.create_many([NewTask(task_type=TYPE, task_content=f"{n}") for n in range(plan.tasks)])
        before = (await tasks.counts(TYPE)).success
        stages, seconds = await _do_all(tasks, plan.tasks)
        pickups = await _pick_up(tasks, creator)
        counts = await tasks.counts(TYPE)
    missing = plan.tasks + PICKUPS - (counts.success - before)
    return LibraryOutcome(stages=stages, seconds=seconds, pickup_ms=median(pickups) * 1_000, missing=missing)


async def _do_all(tasks: Tasks, count: int) -> tuple[int, float]:
    """Return how many stages were done, and how long it took until all were reported."""
    stages, ends = 0, 0

    async def begin(_: HeldTask) -> NextStage:
        nonlocal stages
        stages += 1
        return NextStage(SECOND)

    async def end(_: HeldTask) -> None:
        nonlocal stages, ends
        stages, ends = stages + 1, ends + 1
        if ends == count:
            worker.stop()

    worker = Worker(tasks, TYPE, {"": begin, SECOND: end})
    began = time.perf_counter()
    await worker.run()
    return stages, time.perf_counter() - began


async def _pick_up(tasks: Tasks, creator: Tasks) -> list[float]:
    """Return after how many seconds each of some single tasks was begun."""
    begun: asyncio.Queue[float] = asyncio.Queue()

    async def note(_: HeldTask) -> None:
        begun.put_nowait(time.perf_counter())

    worker = Worker(tasks, TYPE, {"": note})
    working = asyncio.create_task(worker.run())
    seconds = []
    for _ in range(PICKUPS):
        await creator.create(NewTask(task_type=TYPE))
        created = time.perf_counter()
        seconds.append(max(0.0, await begun.get() - created))
        # The worker is back at the queue before the next one comes.
        await asyncio.sleep(0.15)
    worker.stop()
    await working
    return seconds


async def main() -> int:
    """Plan in, outcome out."""
    print((await run(LibraryPlan.model_validate_json(sys.stdin.read()))).model_dump_json())
    return 0


if __name__ == "__main__":
    command.run_and_exit(main())
