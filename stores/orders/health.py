"""What holds a platform up: a clock that cannot be read, credentials that are refused, and that no worker serves it.

Each is noted with the moment at which it began, so that it is told once, and forgotten when it is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, func, select

from domain.orders.activity_models import NoteFailureInput, PresenceResult
from infra.database import Database
from stores.orders import ledger, sweeps
from stores.tables.orders import OrderPlatform, OrderSlice


@dataclass(frozen=True, slots=True)
class ClockFailure:
    """A platform whose clock cannot be read."""

    row: OrderPlatform
    is_first: bool
    """Whether it could be read until now."""
    is_due: bool
    """Whether it has lasted, and is to be told now."""


@dataclass(frozen=True, slots=True)
class ClockSeen:
    """A platform's clock beside the database's."""

    row: OrderPlatform
    skew_seconds: float
    skew_before: float | None


async def note_clock_failure(database: Database, order: NoteFailureInput, patience: timedelta) -> ClockFailure:
    """Note since when a platform's clock cannot be read; it is due to be told once that has lasted."""
    async with database.session() as session:
        row = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
        now = await ledger.database_now(session)
        is_first = row.clock_failed_since is None
        row.clock_failed_since, row.clock_fault = row.clock_failed_since or now, order.fault.model_dump()
        is_due = not row.clock_told and now - row.clock_failed_since >= patience
        row.clock_told = row.clock_told or is_due
        session.add(row)
    return ClockFailure(row, is_first, is_due)


async def note_clock(database: Database, platform: str, clock: datetime) -> ClockSeen:
    """Write how far a platform's clock is before the database's; that it could not be read is over."""
    async with database.session() as session:
        row = await session.get_one(OrderPlatform, platform, with_for_update=True)
        now = await ledger.database_now(session)
        before, skew = row.skew_seconds, (clock - now).total_seconds()
        row.skew_seconds, row.skew_at = skew, now
        row.clock_failed_since, row.clock_fault, row.clock_told = None, None, False
        session.add(row)
    return ClockSeen(row, skew, before)


async def note_refused_credentials(database: Database, order: NoteFailureInput) -> OrderPlatform | None:
    """Note since when a platform refuses its credentials; its row, if that is due to be told."""
    async with database.session() as session:
        row = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
        now = await ledger.database_now(session)
        if row.credentials_good_at is not None and row.credentials_good_at > order.asked_at:
            return None
        row.credentials_failed_since = row.credentials_failed_since or now
        row.credentials_fault = order.fault.model_dump()
        is_due, row.credentials_told = not row.credentials_told, True
        session.add(row)
    return row if is_due else None


async def note_presence(database: Database, presence: PresenceResult) -> list[OrderPlatform]:
    """Note since when no worker serves a platform; the rows of those that are served no longer."""
    lost = []
    async with database.session() as session:
        now = await ledger.database_now(session)
        named = [*presence.served, *presence.unserved]
        rows = await session.exec(select(OrderPlatform).where(col(OrderPlatform.platform).in_(named)).with_for_update())
        for row in rows:
            is_served = row.platform in presence.served
            if not is_served and row.unserved_since is None:
                row.unserved_since = now
                lost.append(row)
            elif is_served:
                row.unserved_since = None
            session.add(row)
    return lost


async def list_numbers(database: Database) -> list[str]:
    """The numbers of all platforms."""
    async with database.session() as session:
        return list(await session.exec(select(OrderPlatform.platform).order_by(col(OrderPlatform.platform))))


@dataclass(frozen=True, slots=True)
class Standstills:
    """All platforms, how many slices of each were told to take too long, and how many failed to be swept."""

    rows: list[OrderPlatform]
    stale: dict[str, int]
    sweeps_failed: dict[str, int]


async def read_standstills(database: Database) -> Standstills:
    """Read what stands still of all platforms."""
    stale = select(OrderSlice.platform, func.count()).where(col(OrderSlice.stale_told_at).is_not(None))
    async with database.session() as session:
        rows = (await session.exec(select(OrderPlatform))).all()
        counts = dict((await session.exec(stale.group_by(col(OrderSlice.platform)))).all())
        unswept = await sweeps.count_failed(session, [row.platform for row in rows])
    return Standstills(list(rows), counts, unswept)
