"""Sweeps: what one that succeeds has found, and what is noted and told of those that fail."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, select

from domain.faults import FaultRecord
from domain.orders.windows import TimeWindow
from infra.database import Session
from stores.orders import ledger
from stores.tables.orders import OrderPlatform, OrderSlice


def has_failed() -> ColumnElement[bool]:
    """Complete, and its last sweep has failed."""
    return and_(
        col(OrderSlice.done_at).is_not(None),
        col(OrderSlice.swept_at).is_(None),
        col(OrderSlice.failed_at).is_not(None),
    )


async def fail(session: Session, platform: OrderPlatform, window: TimeWindow, fault: FaultRecord) -> bool:
    """Note that the sweep of a slice has failed; return whether that is to be told. The platform's row must be locked.

    One sweep that fails is made again after `sweep_after` seconds. That of a slice which fails a second time in a row
    is told, once for a platform, until no sweep of it fails any more.
    """
    row = await ledger.find(session, platform.platform, window, lock=True)
    if row is None or row.done_at is None or row.swept_at is not None:
        return False
    is_due = row.failed_at is not None and not platform.sweeps_told
    row.failed_at, row.fault, row.sweep_holder = await ledger.database_now(session), fault.model_dump(), None
    platform.sweeps_told = platform.sweeps_told or is_due
    session.add_all([row, platform])
    return is_due


async def succeed(
    session: Session, platform: OrderPlatform, row: OrderSlice, missed: int, late_seconds: float | None
) -> None:
    """Note that a slice is swept, and what only that found. The platform's row must be locked."""
    row.swept_at, row.missed, row.late_seconds = await ledger.database_now(session), missed, late_seconds
    row.failed_at, row.fault, row.sweep_holder = None, None, None
    session.add(row)
    if platform.sweeps_told:
        await session.flush()
        platform.sweeps_told = bool(await count_failed(session, [platform.platform]))


async def count_failed(session: Session, platforms: Collection[str]) -> dict[str, int]:
    """Return how many slices of each platform have failed to be swept; those without one are left out."""
    statement = (
        select(OrderSlice.platform, func.count())
        .where(col(OrderSlice.platform).in_(platforms), has_failed())
        .group_by(col(OrderSlice.platform))
    )
    return dict((await session.exec(statement)).all())
