"""The archive: tasks that have ended, and how many there are.

A task that has ended never changes, so writing it again changes nothing, and it is counted once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import asyncpg
from sqlalchemy import ARRAY, BigInteger, Integer, SmallInteger, Text, TextClause, bindparam, text

from domain.tasks import attempts
from domain.tasks.ids import TaskId, split_type
from domain.tasks.messages import Refs, Task
from infra.database import Database, Session

_COLUMNS: Final = {
    "task_id": Text,
    "user_id": Text,
    "priority": Integer,
    "status": SmallInteger,
    "stage": Text,
    "crt_retry_num": Integer,
    "content": Text,
    "schedule_log": Text,
    "refs": SmallInteger,
    "order_time": BigInteger,
    "create_time": BigInteger,
    "modify_time": BigInteger,
    "attempts": Text,
    "lease": BigInteger,
}
_NAMES: Final = ", ".join(_COLUMNS)


def _bound(statement: str) -> TextClause:
    return text(statement).bindparams(
        *(bindparam(name, type_=ARRAY(kind)) for name, kind in _COLUMNS.items() if f":{name}" in statement)
    )


_WRITE = _bound(
    f"WITH written AS (INSERT INTO tasks_archive (type, pos, {_NAMES}) "  # noqa: S608 (all of it is written here)
    f"SELECT :type, :pos, * FROM unnest({', '.join(f':{name}' for name in _COLUMNS)}) "
    "ON CONFLICT DO NOTHING RETURNING status) "
    "INSERT INTO task_counts (type, pos, status, tasks) SELECT :type, :pos, status, count(*) FROM written "
    "GROUP BY status ON CONFLICT (type, pos, status) DO UPDATE SET tasks = task_counts.tasks + excluded.tasks"
).bindparams(bindparam("type", type_=Text), bindparam("pos", type_=Integer))
_DISCARD = text(
    "DELETE FROM task_contents USING unnest(:task_ids, :contents, :logs) AS ended (task_id, content, log) "
    "WHERE task_contents.task_id = ended.task_id AND ref NOT IN (content, log)"
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("task_ids", "contents", "logs")))


# Reading goes past SQLAlchemy: each task that has ended is asked for here.
_FIND = f"SELECT {_NAMES} FROM tasks_archive WHERE task_id = ANY($1::text[])"  # noqa: S608 - a constant
_TYPE = "SELECT type FROM tasks_archive WHERE task_id = $1"
_LIST = f"""
    SELECT {_NAMES} FROM tasks_archive
    WHERE type = $1 AND status = ANY($2::smallint[]) AND ($3::text IS NULL OR stage = $3)
    ORDER BY create_time DESC LIMIT $4
"""  # noqa: S608
# Each status has its own stretch of the index: of several together PostgreSQL would sort all that there is.
_STRETCH = f"""
    (SELECT {_NAMES} FROM tasks_archive
    WHERE type = $1 AND status = {{status}} AND ($2::text IS NULL OR stage = $2)
        AND create_time <= $3 AND (create_time < $3 OR task_id < $4)
    ORDER BY create_time DESC, task_id DESC LIMIT $5)
"""  # noqa: S608
_COUNTS = """
    SELECT status, sum(tasks)::bigint AS tasks FROM task_counts WHERE type = $1 AND NOT pos = ANY($2::int[])
    GROUP BY status
"""

ArchivePlace: TypeAlias = tuple[int, str]
"""When a task was created, and its id."""


async def find(database: Database, task_ids: Sequence[str]) -> dict[str, Task]:
    """Those of these tasks that are in the archive."""
    async with database.connection() as connection:
        return dict(map(_read, await connection.fetch(_FIND, list(task_ids))))


async def find_type(database: Database, task_id: str) -> str | None:
    """The type of a task, if it is in the archive."""
    async with database.connection() as connection:
        type_: str | None = await connection.fetchval(_TYPE, task_id)
    return type_


async def list_newest(
    database: Database, type_: str, statuses: Collection[int], stage: str | None, limit: int
) -> list[tuple[str, Task]]:
    """The newest tasks of a type that fit, with their ids."""
    async with database.connection() as connection:
        return [_read(row) for row in await connection.fetch(_LIST, type_, list(statuses), stage, limit)]


async def list_behind(
    database: Database, type_: str, statuses: Collection[int], stage: str | None, place: ArchivePlace, limit: int
) -> list[tuple[str, Task]]:
    """The newest tasks of a type that fit and come behind a place in the list, with their ids."""
    stretches = " UNION ALL ".join(_STRETCH.format(status=int(status)) for status in statuses)
    text = f"SELECT * FROM ({stretches}) AS found ORDER BY create_time DESC, task_id DESC LIMIT $5"  # noqa: S608
    async with database.connection() as connection:
        return [_read(row) for row in await connection.fetch(text, type_, stage, *place, limit)]


async def count(database: Database, type_: str, without: Collection[int]) -> dict[int, int]:
    """How many tasks of a type have ended, by status; those of some lanes are not counted."""
    async with database.connection() as connection:
        return {row["status"]: row["tasks"] for row in await connection.fetch(_COUNTS, type_, list(without))}


def _read(row: asyncpg.Record) -> tuple[str, Task]:
    task = Task(
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
    return row["task_id"], task


async def write(session: Session, type_: str, pos: int, ended: Sequence[Task]) -> None:
    """Write down tasks that have ended; of their long texts only the last stay."""
    _, name = split_type(type_)
    ids = [str(TaskId(task.key, name, pos)) for task in ended]
    columns = {
        "user_id": [task.user_id for task in ended],
        "priority": [task.priority for task in ended],
        "status": [task.status for task in ended],
        "stage": [task.stage for task in ended],
        "crt_retry_num": [task.crt_retry_num for task in ended],
        "content": [_storable(task.content) for task in ended],
        "schedule_log": [_storable(task.log) for task in ended],
        "refs": [task.refs for task in ended],
        "order_time": [task.order_time for task in ended],
        "create_time": [task.create_time for task in ended],
        "modify_time": [task.modify_time for task in ended],
        "attempts": [attempts.written(task) for task in ended],
        "lease": [task.lease for task in ended],
    }
    await session.execute(_WRITE, {"type": type_, "pos": pos, "task_id": ids, **columns})
    last = {
        "contents": [task.content if task.refs & Refs.CONTENT else "" for task in ended],
        "logs": [task.log if task.refs & Refs.LOG else "" for task in ended],
    }
    await session.execute(_DISCARD, {"task_ids": ids, **last})


def _storable(value: str) -> str:
    """PostgreSQL's text has no NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
