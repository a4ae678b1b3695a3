"""PgQueuer behind the front: its own queries enqueue, dequeue and log, over a pool of asyncpg."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
from pgqueuer.ports.repository import EntrypointExecutionParameter  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # in the peer's environment alone

from bench.peers.tasks import front
from bench.peers.tasks.front import PENDING, QUEUE, RUNNING, SUCCESS, Held

CONNECTIONS = 16
HEARTBEAT_TIMEOUT = timedelta(minutes=15)

_STATUSES = {"queued": PENDING, "picked": RUNNING, "successful": SUCCESS}
_COUNTS = """
    SELECT status::text, count(*) FROM pgqueuer GROUP BY status
    UNION ALL SELECT 'successful', count(*) FROM pgqueuer_log WHERE status = 'successful'
"""
# As its own statements leave a job that has ended: three entries in the log.
_GROW = """
    INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, created)
    SELECT 1000000000 + n, status::pgqueuer_status, 0, 'bench', now() - interval '1 hour'
    FROM generate_series(1, $1::int) AS n, unnest(ARRAY['queued', 'picked', 'successful']) AS status
"""


class PgqueuerJobs:
    """One queue manager that holds for all."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._queries = Queries.from_asyncpg_pool(pool)
        self._manager = uuid4()
        self._held: dict[int, Any] = {}

    async def create(self, content: str) -> str:
        """Enqueue."""
        [job_id] = await self._queries.enqueue(QUEUE, content.encode())
        return str(job_id)

    async def status(self, task_id: str) -> int | None:
        """By its log."""
        found = await self._queries.job_status([int(task_id)])
        return _STATUSES[found[0][1]] if found else None

    async def hold(self, limit: int) -> list[Held]:
        """Dequeue a batch."""
        entrypoints = {QUEUE: EntrypointExecutionParameter(concurrency_limit=0)}
        jobs = await self._queries.dequeue(limit, entrypoints, self._manager, None, HEARTBEAT_TIMEOUT)
        self._held |= {job.id: job for job in jobs}
        return [(str(job.id), job.payload.decode(), 0) for job in jobs]

    async def finish(self, task_id: str, lease: Any) -> bool:
        """Out of the queue, into the log."""
        job = self._held.pop(int(task_id), None)
        if job is None:
            return False
        await self._queries.log_jobs([(job, "successful", None)])
        return True

    async def counts(self) -> dict[int, int]:
        """Over queue and log."""
        rows = await self._pool.fetch(_COUNTS)
        return {_STATUSES[row["status"]]: row["count"] for row in rows}

    async def grow(self, tasks: int) -> None:
        """Into the log."""
        await self._pool.execute(_GROW, tasks)
        await self._pool.execute("VACUUM ANALYZE pgqueuer_log")


@asynccontextmanager
async def _open_store(given: argparse.Namespace) -> AsyncIterator[PgqueuerJobs]:
    async with asyncpg.create_pool(given.database, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        jobs = PgqueuerJobs(pool)
        await Queries.from_asyncpg_pool(pool).install()
        yield jobs


if __name__ == "__main__":
    front.serve(_open_store, "database")
