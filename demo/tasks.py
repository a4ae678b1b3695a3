"""Tasks in the demo: 5,000 tasks, and a worker that is killed halfway; every task must be done all the same."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from demo.part import Demo, Show, WrongOutcome
from haulage.tasks import NewTask, TaskCountsByState, Tasks, TaskType
from haulage.tasks.client import BATCH_MAX

TASKS: Final = 5_000
LEASE_SECONDS: Final = 5
"""What the killed worker held waits for this long."""
RETRIES: Final = 10
POLL_SECONDS: Final = 0.2
STOP_SECONDS: Final = 10.0
FILE: Final = "squares.txt"


class TasksPart:
    """Numbers to be squared by a worker process, which is killed, and by another one."""

    system: str = "tasks"

    def __init__(self, *, lies: bool = False) -> None:
        self._lies = lies
        # A type of its own, so that the demo can be run again on the same data.
        self._type = f"square-{secrets.token_hex(4)}"
        self._killed_at = 0
        self._counts: TaskCountsByState | None = None

    async def prepare(self, demo: Demo) -> None:
        """Register the type of the tasks."""
        async with Tasks(demo.api, demo.key) as tasks:
            await tasks.register(
                TaskType(
                    task_type=self._type, max_processing_time=LEASE_SECONDS, max_retry_interval=0, max_retry_num=10
                )
            )

    async def run(self, demo: Demo, show: Show) -> str:
        """Create the tasks, kill the worker when half of them are done, and have another one do the rest."""
        async with Tasks(demo.api, demo.key) as tasks:
            outcomes = []
            for at in range(0, TASKS, BATCH_MAX):
                batch = [
                    NewTask(task_type=self._type, task_content=str(number)) for number in range(at, at + BATCH_MAX)
                ]
                outcomes += await tasks.create_many(batch)
                show(0, TASKS, f"{len(outcomes):,} tasks created")
            if refused := [outcome.msg for outcome in outcomes if not outcome.good]:
                raise WrongOutcome(f"{len(refused)} tasks were refused: {refused[0]}")
            async with self._run_worker(demo) as first:
                self._killed_at = (await _follow(tasks, self._type, show, TASKS // 2)).success
                first.kill()
            async with self._run_worker(demo):
                self._counts = await _follow(tasks, self._type, show, TASKS)
        return f"did {TASKS:,} tasks; the worker was killed after {self._killed_at:,} of them"

    async def check(self, demo: Demo) -> str:
        """Compare the counts, and look for the line of every task in the file of the workers."""
        if self._counts is None or (self._counts.success, self._counts.task_count) != (TASKS, TASKS):
            raise WrongOutcome(f"The counts at the end are {self._counts}, not {TASKS:,} successes of {TASKS:,} tasks.")
        if not 0 < self._killed_at < TASKS:
            raise WrongOutcome(f"The worker was killed after {self._killed_at:,} tasks, which is not halfway.")
        lines = (demo.folder / FILE).read_text().splitlines()
        expected = {f"{number} {number * number}" for number in range(TASKS)}
        if missing := expected - set(lines):
            raise WrongOutcome(f"{len(missing)} tasks were reported as done and were not, such as {min(missing)!r}.")
        if unknown := set(lines) - expected:
            raise WrongOutcome(f"The workers wrote what was no task, such as {min(unknown)!r}.")
        twice = len(lines) - TASKS
        return f"a result of each of {TASKS:,} tasks; {twice} were done twice"

    @asynccontextmanager
    async def _run_worker(self, demo: Demo) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a worker process; stop it in the end, if it still runs."""
        command = [sys.executable, "-m", "demo.task_worker", demo.api, self._type, str(demo.folder / FILE)]
        process = await asyncio.create_subprocess_exec(
            *command,
            *(["--lie"] if self._lies else []),
            env={**os.environ, "HAULAGE_API_KEY": demo.key},
            cwd=Path(__file__).parents[1],
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _follow(tasks: Tasks, task_type: str, show: Show, enough: int) -> TaskCountsByState:
    """Show the counts until this number of tasks has ended; return the last ones."""
    while True:
        counts = await tasks.counts(task_type)
        show(counts.success, TASKS, f"{counts.success:,} of {TASKS:,} tasks")
        if counts.success + counts.failed >= enough:
            return counts
        await asyncio.sleep(POLL_SECONDS)
