"""Which lanes of a type are open, and how each stands: a row for every position that was begun and is not done.

The last position of a type always is one of them, even before anybody asks it for anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from domain.tasks.messages import Head
from infra.database import Database, Session
from stores.tables.tasks import HEADS_CHANNEL

_NUMBERS: Final = (
    *("number", "next_order_time", "next_lease_end", "due", "pending", "running"),
    *("success", "failed", "cancelled", "held", "retries", "timeouts"),
)
_COUNTS: Final = tuple(name for name in _NUMBERS if not name.startswith("next_"))

_TELL = text(
    f"INSERT INTO task_heads (type, pos, is_full, {', '.join(_NUMBERS)}) "  # noqa: S608 (all of it is written here)
    f"VALUES (:type, :pos, :is_full, {', '.join(f':{name}' for name in _NUMBERS)}) "
    "ON CONFLICT (type, pos) DO UPDATE SET updated_at = now(), is_full = excluded.is_full, "
    f"{', '.join(f'{name} = excluded.{name}' for name in _NUMBERS)} WHERE task_heads.number < excluded.number"
)
_SPAN = text("SELECT begin_pos, end_pos FROM task_types WHERE type = :type FOR UPDATE")
_COUNT_IN = text(
    f"INSERT INTO task_heads (type, pos, is_full, {', '.join(_COUNTS)}) "  # noqa: S608 (all of it is written here)
    f"SELECT :type, pos, false, {', '.join('0' for _ in _COUNTS)} "
    "FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS pos ON CONFLICT DO NOTHING"
)
_COUNT_OUT = text("DELETE FROM task_heads WHERE type = :type AND pos = :pos")
_MOVE_ON = text(
    "UPDATE task_types SET end_pos = :end, begin_pos = "
    "greatest(begin_pos, (SELECT min(pos) FROM task_heads WHERE task_heads.type = :type)) WHERE type = :type"
)


_READ = """
    SELECT pos, number, next_order_time, next_lease_end, due, pending, running, is_full
    FROM task_heads WHERE type = $1
"""
_SUMS = """
    SELECT type, sum(due)::bigint AS due, sum(pending)::bigint AS pending, sum(running)::bigint AS running,
        min(next_order_time) AS next_order_time, count(*) AS lanes, sum(held)::bigint AS held,
        sum(retries)::bigint AS retries, sum(timeouts)::bigint AS timeouts
    FROM task_heads GROUP BY type
"""
_ANNOUNCE = "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told"


@dataclass(frozen=True, slots=True)
class ListedLane:
    """A lane that is open, as it stood when it was heard of last."""

    pos: int
    next_order_time: int | None
    next_lease_end: int | None
    due: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    held: int
    retries: int
    timeouts: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class QueueSums:
    """How the open lanes of a type stand together."""

    type: str
    due: int
    pending: int
    running: int
    next_order_time: int | None
    lanes: int
    held: int
    retries: int
    timeouts: int


_LIST = f"""
    SELECT {", ".join(ListedLane.__slots__)} FROM task_heads WHERE type = $1 AND pos > $2 ORDER BY pos LIMIT $3
"""  # noqa: S608 (all of it is written here)


async def find(database: Database, type_: str) -> dict[int, Head]:
    """The heads of a type's open lanes, by position."""
    async with database.connection() as connection:
        rows = await connection.fetch(_READ, type_)
    return {
        row["pos"]: Head(
            number=row["number"],
            next_order_time=row["next_order_time"],
            next_lease_end=row["next_lease_end"],
            due=row["due"],
            pending=row["pending"],
            running=row["running"],
            full=row["is_full"],
        )
        for row in rows
    }


async def list_page(database: Database, type_: str, after: int, limit: int) -> list[ListedLane]:
    """A type's open lanes behind a position, and one more if another page follows."""
    async with database.connection() as connection:
        return [ListedLane(*row) for row in await connection.fetch(_LIST, type_, after, limit + 1)]


async def sum_by_type(database: Database) -> list[QueueSums]:
    """How the queues stand; a type all of whose lanes are over is left out."""
    async with database.connection() as connection:
        return [QueueSums(*row) for row in await connection.fetch(_SUMS)]


async def announce(database: Database, payloads: Sequence[str]) -> None:
    """Notify who listens on `HEADS_CHANNEL`."""
    async with database.connection() as connection:
        await connection.execute(_ANNOUNCE, HEADS_CHANNEL, payloads)


async def tell(session: Session, type_: str, pos: int, head: Head) -> None:
    """Write down how a lane stands, unless it has said something newer."""
    numbers = {name: getattr(head, name) for name in _NUMBERS}
    await session.execute(_TELL, {"type": type_, "pos": pos, "is_full": head.full, **numbers})


async def is_ahead(session: Session, type_: str, pos: int) -> bool:
    """Whether the type has not come to this position yet."""
    _, end = (await session.execute(_SPAN, {"type": type_})).one()
    return bool(end < pos)


async def open_lane(session: Session, type_: str, pos: int) -> bool:
    """Count a lane in, and those before it that have not said a word yet; whether the type is past it already."""
    begin, end = (await session.execute(_SPAN, {"type": type_})).one()
    await _count_in(session, type_, end, max(end, pos))
    return bool(begin > pos)


async def close_lane(session: Session, type_: str, pos: int) -> None:
    """Count a lane out: the type begins with the first that is open, be it one that is still to come."""
    _, end = (await session.execute(_SPAN, {"type": type_})).one()
    await session.execute(_COUNT_OUT, {"type": type_, "pos": pos})
    await _count_in(session, type_, max(end, pos + 1), max(end, pos + 1))


async def _count_in(session: Session, type_: str, first: int, last: int) -> None:
    await session.execute(_COUNT_IN, {"type": type_, "first": first, "last": last})
    await session.execute(_MOVE_ON, {"type": type_, "end": last})
