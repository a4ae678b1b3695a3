"""Slices that take too long, each reported once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, update
from sqlmodel import and_, col, func, or_, select

from domain.orders import backfills
from domain.orders.windows import TimeWindow
from infra.database import Database
from stores.orders import ledger
from stores.tables.orders import OrderPlatform, OrderSlice


@dataclass(frozen=True, slots=True)
class StaleSlice:
    """A slice that takes too long."""

    slice_id: int | None
    platform: str
    window: TimeWindow
    claimed_at: datetime
    attempts: int
    reread_since: datetime | None


@dataclass(frozen=True, slots=True)
class Overdue:
    """Slices that take too long, as of a moment."""

    slices: Sequence[StaleSlice]
    now: datetime
    before: datetime
    """What was claimed before this takes too long."""


async def find(database: Database, after: timedelta, limit: int) -> Overdue:
    """The oldest slices that take longer than `after` and are not reported yet."""
    async with database.session() as session:
        now = await ledger.database_now(session)
        oldest = select(OrderSlice).where(_is_stale(now - after)).order_by(col(OrderSlice.claimed_at)).limit(limit)
        slices = [
            StaleSlice(
                row.slice_id, row.platform, ledger.window_of(row), row.claimed_at, row.attempts, row.reread_since
            )
            for row in await session.exec(oldest)
        ]
    return Overdue(slices, now, now - after)


async def mark_reported(
    database: Database, overdue: Overdue, ids: Sequence[int | None]
) -> tuple[set[int | None], dict[str, OrderPlatform]]:
    """Mark these slices as reported, unless another scan did or they have ended.

    Returns:
        The ids of those that this call marked, and the platforms of all that are overdue.
    """
    async with database.session() as session:
        statement = (
            update(OrderSlice)
            .where(col(OrderSlice.slice_id).in_(ids), _is_stale(overdue.before))
            .values(stale_told_at=func.now())
            .returning(col(OrderSlice.slice_id))
        )
        marked = set((await session.exec(statement)).scalars()) if ids else set()
        numbers = {each.platform for each in overdue.slices}
        found = await session.exec(select(OrderPlatform).where(col(OrderPlatform.platform).in_(numbers)))
        return marked, {row.platform: row for row in found}


async def fail_reread(database: Database, stale: StaleSlice) -> None:
    """Note that the second reading of a slice ended without a result; what was read before stays."""
    async with database.session() as session:
        await ledger.fail_reread(session, stale.platform, stale.window, backfills.SLICE_TERMINATED)


def _is_stale(before: datetime) -> ColumnElement[bool]:
    """Claimed before a moment and not in, or read again since before it, and not reported yet."""
    is_open = and_(ledger.unfinished(), col(OrderSlice.failed_at).is_(None), col(OrderSlice.claimed_at) < before)
    return and_(
        or_(is_open, col(OrderSlice.reread_since) < before),
        col(OrderSlice.stale_told_at).is_(None),
    )
