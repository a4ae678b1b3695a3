"""`python -m demo.task_worker API TYPE FILE`: a worker of the demo, a process that may be killed at any time.

Each task holds a number; the worker appends a line with the number and its square to the file. The key is in
HAULAGE_API_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from haulage.tasks import HeldTask, Tasks, Worker

TASK_SECONDS = 0.02
"""So that the demo has time to kill a worker halfway."""
CONCURRENCY = 40


def main() -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("api")
    parser.add_argument("type")
    parser.add_argument("file", type=Path)
    parser.add_argument("--lie", action="store_true", help="report every tenth task as done without doing it")
    given = parser.parse_args()
    asyncio.run(work(given.api, os.environ["HAULAGE_API_KEY"], given.type, given.file, lies=given.lie))


async def work(api: str, key: str, task_type: str, path: Path, *, lies: bool) -> None:
    """Run the tasks of a type until SIGTERM."""
    # Each line is one write at the end of the file, so that two workers and a kill leave whole lines.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    async def square(task: HeldTask) -> None:
        await asyncio.sleep(TASK_SECONDS)
        number = int(task.task_content)
        if not (lies and number % 10 == 0):
            os.write(descriptor, f"{number} {number * number}\n".encode())

    async with Tasks(api, key) as tasks:
        worker = Worker(tasks, task_type, {"": square}, concurrency=CONCURRENCY)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


if __name__ == "__main__":
    main()
