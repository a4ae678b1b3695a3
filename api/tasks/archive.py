"""The archive, read: tasks that have ended and that their lanes have forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import asyncpg

from api.together import Gathered
from domain.tasks import attempts
from domain.tasks.messages import Task
from infra.database import Database

TASKS_AT_A_TIME = 500

Place: TypeAlias = tuple[int, str]
"""When a task was created, and its id."""

_COLUMNS = """task_id, type, user_id, priority, status, stage, crt_retry_num, content, schedule_log, refs, order_time,
    create_time, modify_time, attempts, lease"""
_FIND = f"SELECT {_COLUMNS} FROM tasks_archive WHERE task_id = ANY($1::text[])"  # noqa: S608 - a constant
_TYPE = "SELECT type FROM tasks_archive WHERE task_id = $1"
_LIST = f"""
    SELECT {_COLUMNS} FROM tasks_archive
    WHERE type = $1 AND status = ANY($2::smallint[]) AND ($3::text IS NULL OR stage = $3)
    ORDER BY create_time DESC LIMIT $4
"""  # noqa: S608
# Each status has its own stretch of the index: of several together PostgreSQL would sort all that there is.
_STRETCH = f"""
    (SELECT {_COLUMNS} FROM tasks_archive
    WHERE type = $1 AND status = {{status}} AND ($2::text IS NULL OR stage = $2)
        AND create_time <= $3 AND (create_time < $3 OR task_id < $4)
    ORDER BY create_time DESC, task_id DESC LIMIT $5)
"""  # noqa: S608
_COUNTS = """
    SELECT status, sum(tasks)::bigint AS tasks FROM task_counts WHERE type = $1 AND NOT pos = ANY($2::int[])
    GROUP BY status
"""


class Archive:
    """Reads what has ended."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tasks = Gathered(self._find, TASKS_AT_A_TIME)

    async def task(self, task_id: str) -> Task | None:
        """A task that has ended, if it is there."""
        return await self._tasks.ask(task_id)

    async def type_of(self, task_id: str) -> str | None:
        """The type of a task that has ended, if it is there."""
        async with self._database.connection() as connection:
            type_: str | None = await connection.fetchval(_TYPE, task_id)
        return type_

    async def search(
        self, type_: str, statuses: Collection[int], stage: str | None, limit: int
    ) -> list[tuple[str, Task]]:
        """The newest tasks of a type that fit, with their ids."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_LIST, type_, list(statuses), stage, limit)
        return [(row["task_id"], _task(row)) for row in rows]

    async def page(
        self, type_: str, statuses: Collection[int], stage: str | None, before: Place, limit: int
    ) -> list[tuple[str, Task]]:
        """The newest tasks of a type that fit and that come after a place in the list, with their ids."""
        stretches = " UNION ALL ".join(_STRETCH.format(status=int(status)) for status in statuses)
        text = f"SELECT * FROM ({stretches}) AS found ORDER BY create_time DESC, task_id DESC LIMIT $5"  # noqa: S608
        async with self._database.connection() as connection:
            rows = await connection.fetch(text, type_, stage, *before, limit)
        return [(row["task_id"], _task(row)) for row in rows]

    async def counts(self, type_: str, without: Collection[int]) -> dict[int, int]:
        """How many tasks of a type have ended, by status; those of some lanes are not counted."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_COUNTS, type_, list(without))
        return {row["status"]: row["tasks"] for row in rows}

    async def _find(self, task_ids: Sequence[str]) -> Mapping[str, Task]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_FIND, list(task_ids))
        return {row["task_id"]: _task(row) for row in rows}


def _task(row: asyncpg.Record) -> Task:
    return Task(
        key=row["task_id"][:32],
        user_id=row["user_id"],
        priority=row["priority"],
        status=row["status"],
        stage=row["stage"],
        crt_retry_num=row["crt_retry_num"],
        content=row["content"],
        log=row["schedule_log"],
        refs=row["refs"],
        order_time=row["order_time"],
        create_time=row["create_time"],
        modify_time=row["modify_time"],
        lease=row["lease"],
        attempts=attempts.from_archive(row["attempts"]),
    )
