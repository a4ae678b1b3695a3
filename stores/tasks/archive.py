"""The archive: tasks that have ended, how many there are, and their removal after the retention period.

An ended task never changes, so writing it again changes nothing, and it is counted once. Counts outlive the tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from typing import Final, NamedTuple, TypeAlias

import asyncpg
from sqlalchemy import ARRAY, BigInteger, Integer, SmallInteger, Text, TextClause, bindparam, text

from domain.tasks import attempts
from domain.tasks.messages import KEY_CHARACTERS, Task, TaskFlags
from domain.tasks.names import TaskId, split_type_id
from infra.database import Database, Session
from stores.keyset import SqlOrderAndAfterCondition

# Columns of a task besides its type and `pos`, the position of its lane. `refs` has its flags: most say whether
# `content` and `schedule_log` are references to long texts.
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
_KEYSET: Final = SqlOrderAndAfterCondition(("create_time", "task_id"))


def _bind_arrays(statement: str) -> TextClause:
    return text(statement).bindparams(
        *(bindparam(name, type_=ARRAY(kind)) for name, kind in _COLUMNS.items() if f":{name}" in statement)
    )


_WRITE = _bind_arrays(
    f"WITH written AS (INSERT INTO tasks_archive (type, pos, {_NAMES}) "  # noqa: S608 - constants
    f"SELECT :type, :pos, * FROM unnest({', '.join(f':{name}' for name in _COLUMNS)}) "
    "ON CONFLICT DO NOTHING RETURNING status) "
    "INSERT INTO task_counts (type, pos, status, tasks) SELECT :type, :pos, status, count(*) FROM written "
    "GROUP BY status ON CONFLICT (type, pos, status) DO UPDATE SET tasks = task_counts.tasks + excluded.tasks"
).bindparams(bindparam("type", type_=Text), bindparam("pos", type_=Integer))
_REMOVE_OLD_TEXTS = text(
    "DELETE FROM task_contents USING unnest(:task_ids, :contents, :logs) AS ended (task_id, content, log) "
    "WHERE task_contents.task_id = ended.task_id AND ref NOT IN (content, log)"
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("task_ids", "contents", "logs")))

# What is alone in its transaction goes to the driver: ADR 0019.
_FIND = f"SELECT type, {_NAMES} FROM tasks_archive WHERE task_id = ANY($1::text[])"  # noqa: S608 - a constant
_FIND_TYPE = "SELECT type FROM tasks_archive WHERE task_id = $1"
# One range of the index for each status: with several statuses in one query PostgreSQL would sort all their rows.
_PAGE_OF_STATUS = f"""
    (SELECT {_NAMES} FROM tasks_archive
    WHERE type = $1 AND status = {{status}} AND ($2::text IS NULL OR stage = $2)
        AND ($3::text IS NULL OR user_id = $3) AND {_KEYSET.format_after_condition("$4", "$5")}
    {_KEYSET.order_by} LIMIT $6)
"""  # noqa: S608
_COUNT = """
    SELECT status, sum(tasks)::bigint AS tasks FROM task_counts WHERE type = $1 AND NOT pos = ANY($2::int[])
    GROUP BY status
"""

# The index has the time of creation, not that of the end. The next batch begins, by `since`, where this one stopped: so
# tasks that were created long ago and ended lately are read once, not by every batch.
_EXPIRED = """
    SELECT task_id, create_time FROM tasks_archive WHERE type = $1 AND status = $2
        AND create_time >= $3 AND create_time < $4 AND modify_time < $4 ORDER BY create_time LIMIT $5
"""
_REMOVE = [
    text(f"DELETE FROM {table} WHERE task_id = ANY(:task_ids)").bindparams(  # noqa: S608 - constants
        bindparam("task_ids", type_=ARRAY(Text))
    )
    for table in ("task_contents", "task_keys", "tasks_archive")
]
_TYPES = "SELECT type FROM task_types ORDER BY type"
_TEXTS = "SELECT task_id, content, schedule_log, refs FROM tasks_archive WHERE task_id = ANY($1::text[])"

TypeAndTaskId: TypeAlias = tuple[str, str]
ArchivePlace: TypeAlias = tuple[int, str]
"""When a task was created, and its id."""
NEWEST_PLACE: Final[ArchivePlace] = (10**15, "")
"""A place before all tasks."""


@dataclass(frozen=True, slots=True)
class ArchiveFilter:
    """Which archived tasks; None matches all."""

    stage: str | None = None
    user_id: str | None = None


class ExpiredArchivedTask(NamedTuple):
    """An archived task that is past its retention."""

    task_id: str
    create_time: int


async def find_archived_tasks(database: Database, places: Sequence[TypeAndTaskId]) -> dict[TypeAndTaskId, Task]:
    """Return the tasks that are in the archive, by type and id; an id alone does not say whose task it is."""
    async with database.connection() as connection:
        rows = await connection.fetch(_FIND, [task_id for _, task_id in places])
    return {(row["type"], row["task_id"]): _build_task(row)[1] for row in rows}


async def find_type_of_archived_task(database: Database, task_id: str) -> str | None:
    """Return the type of an archived task."""
    async with database.connection() as connection:
        type_: str | None = await connection.fetchval(_FIND_TYPE, task_id)
    return type_


async def list_archived_task_page(
    database: Database, type_: str, statuses: Collection[int], filters: ArchiveFilter, after: ArchivePlace, limit: int
) -> list[tuple[str, Task]]:
    """Return the newest tasks of a type that match and come behind a place, with their ids."""
    pages = " UNION ALL ".join(_PAGE_OF_STATUS.format(status=int(status)) for status in statuses)
    statement = f"SELECT * FROM ({pages}) AS found {_KEYSET.order_by} LIMIT $6"  # noqa: S608 - constants
    async with database.connection() as connection:
        return [_build_task(row) for row in await connection.fetch(statement, type_, *astuple(filters), *after, limit)]


async def count_ended_by_status(database: Database, type_: str, excluded_lanes: Collection[int]) -> dict[int, int]:
    """Count the ended tasks of a type by status, without those of some lanes."""
    async with database.connection() as connection:
        return {row["status"]: row["tasks"] for row in await connection.fetch(_COUNT, type_, list(excluded_lanes))}


def _build_task(row: asyncpg.Record) -> tuple[str, Task]:
    task = Task(
        key=row["task_id"][:KEY_CHARACTERS],
        user_id=row["user_id"],
        priority=row["priority"],
        status=row["status"],
        stage=row["stage"],
        crt_retry_num=row["crt_retry_num"],
        content=row["content"],
        log=row["schedule_log"],
        flags=row["refs"],
        order_time=row["order_time"],
        create_time=row["create_time"],
        modify_time=row["modify_time"],
        lease=row["lease"],
        attempts=attempts.decode_attempts_from_archive(row["attempts"]),
    )
    return row["task_id"], task


async def archive_ended_tasks_and_delete_unused_texts(
    session: Session, type_: str, pos: int, ended: Sequence[Task]
) -> None:
    """Write ended tasks of a lane, and remove the texts that they no longer refer to."""
    _, name = split_type_id(type_)
    ids = [str(TaskId(task.key, name, pos)) for task in ended]
    columns = {
        "user_id": [task.user_id for task in ended],
        "priority": [task.priority for task in ended],
        "status": [task.status for task in ended],
        "stage": [task.stage for task in ended],
        "crt_retry_num": [task.crt_retry_num for task in ended],
        "content": [_replace_nul(task.content) for task in ended],
        "schedule_log": [_replace_nul(task.log) for task in ended],
        "refs": [task.flags for task in ended],
        "order_time": [task.order_time for task in ended],
        "create_time": [task.create_time for task in ended],
        "modify_time": [task.modify_time for task in ended],
        "attempts": [attempts.encode_attempts_for_archive(task) for task in ended],
        "lease": [task.lease for task in ended],
    }
    await session.execute(_WRITE, {"type": type_, "pos": pos, "task_id": ids, **columns})
    used = {
        "contents": [task.content if task.flags & TaskFlags.CONTENT else "" for task in ended],
        "logs": [task.log if task.flags & TaskFlags.LOG else "" for task in ended],
    }
    await session.execute(_REMOVE_OLD_TEXTS, {"task_ids": ids, **used})


def _replace_nul(value: str) -> str:
    """PostgreSQL's text has no NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


async def list_all_types(database: Database) -> list[str]:
    """Return the names of the types of every project."""
    async with database.connection() as connection:
        return [row["type"] for row in await connection.fetch(_TYPES)]


async def list_expired_archived_tasks(
    database: Database, type_: str, status: int, since: int, before: int, limit: int
) -> list[ExpiredArchivedTask]:
    """Return tasks that ended before a time and were created since another, oldest first."""
    async with database.connection() as connection:
        rows = await connection.fetch(_EXPIRED, type_, status, since, before, limit)
    return [ExpiredArchivedTask(*row) for row in rows]


async def delete_tasks_texts_and_keys(database: Database, task_ids: Sequence[str]) -> None:
    """Remove tasks, their texts and their keys in one transaction."""
    async with database.session() as session:
        for statement in _REMOVE:
            await session.execute(statement, {"task_ids": task_ids})


def get_references_of_long_texts(content: str, log: str, flags: int) -> frozenset[str]:
    """Return the references to long texts among a task's content and log."""
    fields = ((content, TaskFlags.CONTENT), (log, TaskFlags.LOG))
    return frozenset(ref for ref, flag in fields if flags & flag)


async def list_text_references(database: Database, task_ids: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the references to long texts of archived tasks, by task id."""
    async with database.connection() as connection:
        rows = await connection.fetch(_TEXTS, list(task_ids))
    return {task_id: get_references_of_long_texts(content, log, flags) for task_id, content, log, flags in rows}
