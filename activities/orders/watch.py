"""Activities of the watch over workers, slices and backfills, and housekeeping of orders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from domain.orders import names
from domain.orders.activity_models import AlarmsToAnnounce, PlatformAlarm, PlatformNumbersResult, ServedPlatformsResult
from domain.orders.slices import BACKFILL_TERMINATED
from infra import log, outages, starts, temporal
from infra.database import Database
from infra.heartbeats import send_heartbeats_during_block
from infra.housekeeping import remove_in_batches_within_time
from infra.limits import DatabaseLimiter
from services.services import Services
from stores import pauses
from stores.orders import backfills, health, order_copies, platforms
from stores.orders.health import StaleSlice
from stores.orders.platforms import build_alarm


class PlatformPresenceActivities:
    """Activities of the watch over workers."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="order_platforms")
    async def list_platforms(self) -> PlatformNumbersResult:
        """List all platforms."""
        return PlatformNumbersResult(platforms=await platforms.list_platform_numbers(self._database))

    @activity.defn(name="order_note_presence")
    async def record_unserved_and_alarm_newly_unserved(self, presence: ServedPlatformsResult) -> AlarmsToAnnounce:
        """Record since when platforms are unserved; return an alarm for each that has just become so."""
        alarms = AlarmsToAnnounce()
        call = temporal.get_activity_call()
        for row in await health.record_served_and_find_newly_unserved(self._database, presence, call):
            log.get(__name__).error("platform_unserved", platform=row.platform)
            if row.notify is not None:
                alarms.alarms.append(
                    build_alarm(row, row.notify, "orders.platform_unserved", _build_unserved_message(row.platform))
                )
        return alarms


SLICES_AT_ONCE: Final = 100
"""Limit of slices that one scan reports."""


class OverdueScanActivities:
    """Activities that look for slices and backfills that should have ended."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._stale_after = timedelta(hours=services.settings.orders.stale_hours)

    @activity.defn(name="order_scan")
    async def report_stale_slices_and_close_lost_backfills(self) -> AlarmsToAnnounce:
        """Return an alarm for each stale slice and each lost backfill, once."""
        call = temporal.get_activity_call()
        alarms = await self._report_stale_slices(call)
        return AlarmsToAnnounce(alarms=[*alarms, *await self._close_lost_backfills(call)])

    async def _report_stale_slices(self, call: str) -> list[PlatformAlarm]:
        """Mark slices that take too long as reported, and return their alarms."""
        waiting = await health.list_platforms_with_stale_unbegun_slices(self._database, self._stale_after)
        paused = [each for each in waiting if await is_platform_paused(self._engine, self._database, each)]
        overdue = await health.list_slices_claimed_too_long_ago(
            self._database, self._stale_after, SLICES_AT_ONCE, not_begun_by=paused, call=call
        )
        lost = [each for each in overdue.slices if await self._has_reread_without_running_workflow(each)]
        for each in lost:
            await health.record_stale_reread_as_failed(self._database, each)
        ids = [each.slice_id for each in overdue.slices if each not in lost]
        reported, platforms = await health.mark_reported_and_load_overdue_platforms(self._database, overdue, ids, call)
        alarms = []
        for each in overdue.slices:
            if each.slice_id in reported:
                log.get(__name__).error("order_slice_stale", platform=each.platform, window=str(each.window))
                platform = platforms[each.platform]
                if platform.notify is not None:
                    message = _build_stale_message(each, overdue.now)
                    alarms.append(build_alarm(platform, platform.notify, "orders.slice_stale", message))
        return alarms

    async def _close_lost_backfills(self, call: str) -> list[PlatformAlarm]:
        """Close the records of backfills whose workflow was terminated; return an alarm for each."""
        is_repeated = activity.info().attempt > 1
        rows = await backfills.list_running_backfills(self._database, call if is_repeated else None)
        lost = [
            row.backfill_id
            for row in rows
            if row.closed_by == call or not await is_workflow_running(self._engine, row.workflow_id)
        ]
        closed = [
            await backfills.close_as_failed(self._database, backfill_id, BACKFILL_TERMINATED, call)
            for backfill_id in lost
        ]
        return [alarm for alarm in closed if alarm]

    async def _has_reread_without_running_workflow(self, stale: StaleSlice) -> bool:
        """Return whether a slice is to be read again and no workflow does so any more."""
        workflow_id = names.build_slice_workflow_id(stale.platform, stale.window, names.REDO_SUFFIX)
        return stale.reread_since is not None and not await is_workflow_running(self._engine, workflow_id)


async def is_platform_paused(engine: Client, database: Database, platform: str) -> bool:
    """Return whether a platform claims nothing: its schedule is paused, or all of orders are."""
    return await pauses.is_system_paused(database, names.SYSTEM) or await starts.is_schedule_paused(
        engine, names.build_cycle_schedule_id(platform)
    )


async def is_workflow_running(engine: Client, workflow_id: str) -> bool:
    """Return whether a workflow is running."""
    try:
        description = await engine.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        return False
    return description.status is WorkflowExecutionStatus.RUNNING


def _build_unserved_message(platform: str) -> str:
    queue = names.build_slice_queue_name(platform)
    return (
        f"No worker serves platform {platform}: its orders stand still, none is lost. "
        f"Start one with `haulage worker --queues {queue}`, or `{names.PLATFORM_QUEUES}` for all platforms."
    )


def _build_stale_message(stale: StaleSlice, now: datetime) -> str:
    window = stale.window
    if stale.reread_since is not None:
        workflow_id = names.build_slice_workflow_id(stale.platform, window, names.REDO_SUFFIX)
        hours = (now - stale.reread_since).total_seconds() / 3600
        state = f"is being read again for {hours:.0f} hours"
        advice = "end that in Temporal, and redo the slice"
    else:
        workflow_id = names.build_slice_workflow_id(stale.platform, window)
        hours = (now - stale.claimed_at).total_seconds() / 3600
        attempts = f"{stale.attempts} attempts have begun" if stale.attempts else "no attempt has begun"
        state = f"was claimed {hours:.0f} hours ago and is not in: {attempts}. It holds `complete_to` back"
        advice = "end that in Temporal, and a cycle begins the slice anew"
    return (
        f"The slice {window} of platform {stale.platform} {state}. None of its orders is lost. Its workflow "
        f"{workflow_id} tells what it waits for; {advice}. "
        f"GET /v1/platforms/{stale.platform}/slices?stale=true lists all of them."
    )


PURGE_BATCH: Final = 10_000
STAGED_DAYS: Final = 7
"""Longer than a slice may wait between two attempts."""


class OrderHousekeeping:
    """Activities that delete rows and objects past their retention."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._settings = services.settings.orders

    @activity.defn(name=names.PURGE)
    async def purge_copies_pages_and_answers(self) -> None:
        """Delete copies, raw pages and staged answers past their retention."""
        await DatabaseLimiter(self._database).delete_expired_rows()
        kept = timedelta(days=self._settings.copies_kept_days)
        copies = await remove_in_batches_within_time(
            partial(order_copies.delete_expired_replaced_copies, self._database, kept), PURGE_BATCH
        )
        pages = await self._delete_objects_older_than(names.RAW, self._settings.raw_kept_days)
        pages += await self._delete_objects_older_than(names.STAGING, STAGED_DAYS)
        if copies or pages:
            log.get(__name__).info("orders_purged", copies=copies, pages=pages)

    async def _delete_objects_older_than(self, prefix: str, days: int) -> int:
        before = datetime.now(UTC) - timedelta(days=days)
        async with send_heartbeats_during_block():
            past = [each.key for each in await self._objects.list(prefix) if each.modified < before]
            for key in past:
                await self._objects.delete(key)
        return len(past)
