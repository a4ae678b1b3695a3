"""Procrastinate behind the front: its own manager defers, fetches and finishes jobs, one at a time as it does."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]  # in the peer's environment alone
from procrastinate.jobs import Status  # type: ignore[import-not-found]

from bench.peers.tasks import front
from bench.peers.tasks.front import PENDING, QUEUE, RUNNING, SUCCESS, Held

CONNECTIONS = 16

_STATUSES = {Status.TODO: PENDING, Status.DOING: RUNNING, Status.SUCCEEDED: SUCCESS}
_COUNTS = "SELECT status::text AS status, count(*) AS jobs FROM procrastinate_jobs GROUP BY status"
_GROW = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, status)
    SELECT 'bench', 'bench', jsonb_build_object('content', repeat('x', 100)), 'succeeded'
    FROM generate_series(1, %(tasks)s)
"""


class ProcrastinateJobs:
    """One application, one worker that holds for all."""

    def __init__(self, app: Any, worker_id: int) -> None:
        self._app = app
        self._task = app.tasks[QUEUE]
        self._worker_id = worker_id

    async def create(self, content: str) -> str:
        """Defer."""
        return str(await self._task.defer_async(content=content))

    async def status(self, task_id: str) -> int | None:
        """By the manager."""
        return _STATUSES[await self._app.job_manager.get_job_status_async(int(task_id))]

    async def hold(self, limit: int) -> list[Held]:
        """One job after the other, as its worker fetches them."""
        held: list[Held] = []
        while len(held) < limit and (job := await self._app.job_manager.fetch_job([QUEUE], self._worker_id)):
            held.append((str(job.id), job.task_kwargs["content"], 0))
        return held

    async def finish(self, task_id: str, lease: Any) -> bool:
        """It raises unless the job is being done."""
        await self._app.job_manager.finish_job_by_id_async(int(task_id), Status.SUCCEEDED, delete_job=False)
        return True

    async def counts(self) -> dict[int, int]:
        """Over all rows."""
        rows = await self._app.connector.execute_query_all_async(_COUNTS)
        return {_STATUSES[Status(row["status"])]: row["jobs"] for row in rows}

    async def grow(self, tasks: int) -> None:
        """Past its triggers, which would write an event for each."""
        execute = self._app.connector.execute_query_async
        await execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER")
        await execute(_GROW, tasks=tasks)
        await execute("ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER")
        await execute("ANALYZE procrastinate_jobs")


@asynccontextmanager
async def _open_store(given: argparse.Namespace) -> AsyncIterator[ProcrastinateJobs]:
    connector = PsycopgConnector(conninfo=given.database, min_size=CONNECTIONS, max_size=CONNECTIONS)
    app = App(connector=connector)

    @app.task(name=QUEUE, queue=QUEUE)  # type: ignore[untyped-decorator]
    async def task(content: str) -> None:
        """The job, which its holder ends."""

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield ProcrastinateJobs(app, await app.job_manager.register_worker())


if __name__ == "__main__":
    front.serve(_open_store, "database")
