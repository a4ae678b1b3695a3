"""Tasks whose time is over and texts that are no task's: how they are found, and removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sqlalchemy import ARRAY, Text, bindparam, text

from domain.tasks.messages import Refs
from infra.database import Database

_IDS: Final = bindparam("task_ids", type_=ARRAY(Text))
_TYPES = text("SELECT type FROM task_types ORDER BY type")
# Whoever was created long ago and has ended only lately is passed over, and not looked at again with each batch.
_PAST = text(
    "SELECT task_id, create_time FROM tasks_archive WHERE type = :type AND status = :status "
    "AND create_time >= :since AND create_time < :before AND modify_time < :before ORDER BY create_time LIMIT :batch"
)
_REMOVE = [
    text(f"DELETE FROM {table} WHERE task_id = ANY(:task_ids)").bindparams(_IDS)  # noqa: S608 - names of ours
    for table in ("task_contents", "task_keys", "tasks_archive")
]
_UNSETTLED = text(
    "SELECT task_id, ref, written_at FROM task_contents WHERE written_at > :since AND written_at < :before "
    "ORDER BY written_at FETCH FIRST :batch ROWS WITH TIES"
)
# A text that was written once more since then may be about to become its task's.
_DISCARD = text(
    "DELETE FROM task_contents USING unnest(:task_ids, :refs) AS stray (task_id, ref) "
    "WHERE task_contents.task_id = stray.task_id AND task_contents.ref = stray.ref AND written_at < :before"
).bindparams(_IDS, bindparam("refs", type_=ARRAY(Text)))
_SETTLED = text("SELECT settled_until FROM task_texts_settled")
_SETTLE = text(
    "INSERT INTO task_texts_settled (settled_until) VALUES (:until) "
    "ON CONFLICT (is_one) DO UPDATE SET settled_until = excluded.settled_until"
)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN = text(
    "SELECT t.type, t.name, h.pos FROM task_types t JOIN task_heads h USING (type) WHERE t.name = ANY(:names)"
).bindparams(bindparam("names", type_=ARRAY(Text)))
_ENDED = text("SELECT task_id, content, schedule_log, refs FROM tasks_archive WHERE task_id = ANY(:ids)").bindparams(
    bindparam("ids", type_=ARRAY(Text))
)


class PastTask(NamedTuple):
    """A task that ended before a moment."""

    task_id: str
    create_time: int


class StoredText(NamedTuple):
    """A text of a task, wherever that is."""

    task_id: str
    ref: str
    written_at: datetime


class OpenLane(NamedTuple):
    """A lane that is open."""

    type: str
    name: str
    """The type's name within its project."""
    pos: int


def references(content: str, log: str, refs: int) -> frozenset[str]:
    """The texts that a task refers to."""
    places = ((content, Refs.CONTENT), (log, Refs.LOG))
    return frozenset(ref for ref, flag in places if refs & flag)


async def list_types(database: Database) -> list[str]:
    """All types of tasks."""
    async with database.session() as session:
        return list((await session.execute(_TYPES)).scalars())


async def list_past(database: Database, type_: str, status: int, since: int, before: int, limit: int) -> list[PastTask]:
    """Tasks of the archive that ended before a moment and were created since another, the oldest first."""
    wanted = {"type": type_, "status": status, "since": since, "before": before, "batch": limit}
    async with database.session() as session:
        return [PastTask(*row) for row in await session.execute(_PAST, wanted)]


async def remove(database: Database, task_ids: Sequence[str]) -> None:
    """Remove tasks from the archive, with their texts and the keys that stand for them."""
    async with database.session() as session:
        for statement in _REMOVE:
            await session.execute(statement, {"task_ids": task_ids})


async def list_unsettled(database: Database, before: datetime, limit: int) -> list[StoredText]:
    """Texts written before a moment that were not looked at, the oldest first; of the last moment all there are."""
    async with database.session() as session:
        since = (await session.execute(_SETTLED)).scalar() or _BEGINNING
        rows = await session.execute(_UNSETTLED, {"since": since, "before": before, "batch": limit})
        return [StoredText(*row) for row in rows]


async def settle(database: Database, stray: Sequence[StoredText], before: datetime, until: datetime) -> None:
    """Remove texts that are no task's, and note that all that were written until a moment were looked at."""
    values = {"task_ids": [each.task_id for each in stray], "refs": [each.ref for each in stray], "before": before}
    async with database.session() as session:
        await session.execute(_DISCARD, values)
        await session.execute(_SETTLE, {"until": until})


async def list_open_lanes(database: Database, names: Collection[str]) -> list[OpenLane]:
    """The open lanes of types by their names, of whichever project."""
    async with database.session() as session:
        return [OpenLane(*row) for row in await session.execute(_OPEN, {"names": sorted(names)})]


async def read_references(database: Database, task_ids: Sequence[str]) -> dict[str, frozenset[str]]:
    """Which texts tasks of the archive refer to, by id."""
    async with database.session() as session:
        rows = await session.execute(_ENDED, {"ids": task_ids})
        return {task_id: references(content, log, refs) for task_id, content, log, refs in rows}
