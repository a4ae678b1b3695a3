"""The scan of the watch: slices that take too long, and backfills that nobody leads any more."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from temporalio import activity

from activities.orders.backfilling import OrderBackfills, is_running
from domain.orders import names
from domain.orders.activity_models import Alarm, AlarmsResult
from infra import log, starts
from services.services import Services
from stores.orders import health
from stores.orders.health import StaleSlice
from stores.orders.platforms import build_alarm

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
    async def scan(self) -> AlarmsResult:
        """Report each stale slice and each lost backfill, once."""
        alarms = await self._stale()
        return AlarmsResult(alarms=[*alarms, *await self._backfills.close_lost()])

    async def _stale(self) -> list[Alarm]:
        """Note which slices take too long, and say whom to tell."""
        overdue = await health.find_stale(self._database, self._stale_after, SLICES_AT_ONCE)
        ids = [each.slice_id for each in overdue.slices if not await self._is_excused(each)]
        reported, platforms = await health.mark_stale_reported(self._database, overdue, ids)
        alarms = []
        for each in overdue.slices:
            if each.slice_id in reported:
                log.get(__name__).error("order_slice_stale", platform=each.platform, window=str(each.window))
                platform = platforms[each.platform]
                if platform.notify is not None:
                    message = _sentence(each, overdue.now)
                    alarms.append(build_alarm(platform, platform.notify, "orders.slice_stale", message))
        return alarms

    async def _is_excused(self, stale: StaleSlice) -> bool:
        """Whether a slice has a reason to take so long, or has ended without having been able to say so."""
        if stale.reread_since is not None:
            workflow_id = names.slice_id(stale.platform, stale.window, names.REDO_SUFFIX)
            if await is_running(self._engine, workflow_id):
                return False
            await health.fail_stale_reread(self._database, stale)
            return True
        return not stale.attempts and await starts.is_schedule_paused(self._engine, names.schedule_id(stale.platform))


def _sentence(stale: StaleSlice, now: datetime) -> str:
    window = stale.window
    if stale.reread_since is not None:
        workflow_id = names.slice_id(stale.platform, window, names.REDO_SUFFIX)
        hours = (now - stale.reread_since).total_seconds() / 3600
        state = f"is being read again for {hours:.0f} hours"
        advice = "end that in Temporal, and redo the slice"
    else:
        workflow_id = names.slice_id(stale.platform, window)
        hours = (now - stale.claimed_at).total_seconds() / 3600
        attempts = f"{stale.attempts} attempts have begun" if stale.attempts else "no attempt has begun"
        state = f"was claimed {hours:.0f} hours ago and is not in: {attempts}. It holds `complete_to` back"
        advice = "end that in Temporal, and a cycle begins the slice anew"
    return (
        f"The slice {window} of platform {stale.platform} {state}. None of its orders is lost. Its workflow "
        f"{workflow_id} tells what it waits for; {advice}. "
        f"GET /v1/platforms/{stale.platform}/slices?stale=true lists all of them."
    )
