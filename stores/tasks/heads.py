"""Which lanes of a type are open, and how each stands: a row for every position that was begun and is not done.

The last position of a type always is one of them, even before anybody asks it for anything.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from domain.tasks.messages import Head
from infra.database import Session

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
