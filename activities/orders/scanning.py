"""The scan of the watch: slices that take too long, and backfills that nobody leads any more."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, update
from sqlmodel import and_, col, func, or_, select
from temporalio import activity

from activities.orders.backfilling import OrderBackfills, is_running
from domain.orders import backfills, names
from domain.orders.steps import Alarm, Alarms
from infra import log, schedules
from services.services import Services
from stores.orders import ledger
from stores.orders.alarms import alarm
from stores.tables.orders import OrderPlatform, OrderSlice

SLICES_AT_ONCE: Final = 100
"""Slices that one scan reports at most; the next one is soon."""


class OrderScan:
    """Looks for what should have ended."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._stale_after = timedelta(hours=services.settings.orders.stale_hours)
        self._backfills = OrderBackfills(services)

    @activity.defn(name="order_scan")
    async def scan(self) -> Alarms:
        """Report each stale slice and each lost backfill, once."""
        alarms = await self._stale()
        return Alarms(alarms=[*alarms, *await self._backfills.close_lost()])

    async def _stale(self) -> list[Alarm]:
        """Note which slices take too long, and say whom to tell."""
        async with self._database.session() as session:
            now = await ledger.database_now(session)
            is_stale = _is_stale(now - self._stale_after)
            oldest = select(OrderSlice).where(is_stale).order_by(col(OrderSlice.claimed_at)).limit(SLICES_AT_ONCE)
            rows = (await session.exec(oldest)).all()
        ids = [row.slice_id for row in rows if not await self._is_excused(row)]
        async with self._database.session() as session:
            statement = (
                update(OrderSlice)
                .where(col(OrderSlice.slice_id).in_(ids), is_stale)
                .values(stale_told_at=func.now())
                .returning(col(OrderSlice.slice_id))
            )
            told = set((await session.exec(statement)).scalars()) if ids else set()
            numbers = {row.platform for row in rows}
            found = await session.exec(select(OrderPlatform).where(col(OrderPlatform.platform).in_(numbers)))
            platforms = {row.platform: row for row in found}
        alarms = []
        for row in rows:
            if row.slice_id in told:
                log.get(__name__).error("order_slice_stale", platform=row.platform, window=str(ledger.window_of(row)))
                platform = platforms[row.platform]
                if platform.notify is not None:
                    alarms.append(alarm(platform, platform.notify, "orders.slice_stale", _sentence(row, now)))
        return alarms

    async def _is_excused(self, row: OrderSlice) -> bool:
        """Whether a slice has a reason to take so long, or has ended without having been able to say so."""
        if row.reread_since is not None:
            window = ledger.window_of(row)
            workflow_id = names.slice_id(row.platform, window, names.REDO_SUFFIX)
            if await is_running(self._engine, workflow_id):
                return False
            async with self._database.session() as session:
                await ledger.fail_reread(session, row.platform, window, backfills.SLICE_ENDED_BY_HAND)
            return True
        return not row.attempts and await schedules.is_paused(self._engine, names.schedule_id(row.platform))


def _is_stale(before: datetime) -> ColumnElement[bool]:
    """Claimed before a moment and not in, or read again since before it, and not reported yet."""
    is_open = and_(ledger.unfinished(), col(OrderSlice.failed_at).is_(None), col(OrderSlice.claimed_at) < before)
    return and_(
        or_(is_open, col(OrderSlice.reread_since) < before),
        col(OrderSlice.stale_told_at).is_(None),
    )


def _sentence(row: OrderSlice, now: datetime) -> str:
    window = ledger.window_of(row)
    if row.reread_since is not None:
        workflow_id = names.slice_id(row.platform, window, names.REDO_SUFFIX)
        hours = (now - row.reread_since).total_seconds() / 3600
        state = f"is being read again for {hours:.0f} hours"
        advice = "end that in Temporal, and redo the slice"
    else:
        workflow_id = names.slice_id(row.platform, window)
        hours = (now - row.claimed_at).total_seconds() / 3600
        attempts = f"{row.attempts} attempts have begun" if row.attempts else "no attempt has begun"
        state = f"was claimed {hours:.0f} hours ago and is not in: {attempts}. It holds `complete_to` back"
        advice = "end that in Temporal, and a cycle begins the slice anew"
    return (
        f"The slice {window} of platform {row.platform} {state}. None of its orders is lost. Its workflow "
        f"{workflow_id} tells what it waits for; {advice}. "
        f"GET /v1/platforms/{row.platform}/slices?stale=true lists all of them."
    )
