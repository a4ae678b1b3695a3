"""Workers for the queues of platforms, which appear at run time, and gauges of platforms that are not being fetched."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from prometheus_client import Gauge
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerTuner,
)

from activities.orders.activities import PlatformActivities
from activities.orders.reporting import ReportActivities
from domain.orders import names
from infra import log, metrics
from infra.database import DATABASE_ERRORS
from infra.temporal import BUILD_ID
from services.services import Services
from stores.orders import health, platforms
from stores.orders.slices import OpenAndFailedSliceCounts

CONTROL_SLOTS: Final = 20
IDLE_SLOTS: Final = 5
REPORT_SLOTS: Final = 1

_log = log.get(__name__)


class AdjustableActivitySlots(CustomSlotSupplier):
    """Activity slots whose number can change: a raised limit applies at once, a lowered one as slices end.

    The SDK releases slots from threads of its own.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set_limit(self, limit: int) -> None:
        """Change how many slices are read at the same time."""
        self._limit = limit
        self._changed.set()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """See base class."""
        while True:
            self._changed.clear()
            if permit := self.try_reserve_slot(ctx):
                return permit
            await self._changed.wait()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """See base class."""
        with self._lock:
            if self._taken >= self._limit:
                return None
            self._taken += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See base class."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """See base class."""
        with self._lock:
            self._taken -= 1
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)


class WorkersOfOnePlatform:
    """Workers of one platform: slices, reports beside them, and control activities that answer at once."""

    def __init__(self, services: Services, steps: PlatformActivities, platform: str, threads: int) -> None:
        self.threads = AdjustableActivitySlots(threads)
        report = ReportActivities(services, steps)
        control = WorkerTuner.create_fixed(activity_slots=CONTROL_SLOTS)
        reports = WorkerTuner.create_fixed(activity_slots=REPORT_SLOTS)
        reading = WorkerTuner.create_composite(
            workflow_supplier=FixedSizeSlotSupplier(IDLE_SLOTS),
            activity_supplier=self.threads,
            local_activity_supplier=FixedSizeSlotSupplier(IDLE_SLOTS),
            nexus_supplier=FixedSizeSlotSupplier(IDLE_SLOTS),
        )
        self.workers = (
            _build_worker(
                services,
                names.build_control_queue_name(platform),
                [steps.measure_clock_skew, steps.answer_presence],
                control,
            ),
            _build_worker(
                services,
                names.build_report_queue_name(platform),
                [report.list_orders_and_store_report_part, report.compare_and_write_report],
                reports,
            ),
            _build_worker(services, names.build_slice_queue_name(platform), [steps.read_and_commit_slice], reading),
        )


async def serve_platforms(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Serve the platforms among these queues until *stop* is set, also new ones; those that were removed are left.

    A change of platforms or options notifies this process. It reads them every few seconds as well, as a notification
    is lost while there is no connection.
    """
    named = {platform for queue in queues if (platform := names.parse_platform_of_slice_queue(queue))}
    if not named and names.PLATFORM_QUEUES not in queues:
        return
    steps, counters = PlatformActivities(services), dict[str, WorkersOfOnePlatform]()
    changed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(stop.wait())
        listening = group.create_task(_set_event_at_each_change_of_platforms(services, changed))
        while not stop.is_set():
            changed.clear()
            found = await _load_threads_by_platform_or_none_in_outage(services)
            if found is not None:
                _leave_removed_platforms(counters, found, group)
            for platform, threads in (found or {}).items():
                if platform in counters:
                    counters[platform].threads.set_limit(threads)
                elif platform in named or names.PLATFORM_QUEUES in queues:
                    counters[platform] = counter = WorkersOfOnePlatform(services, steps, platform, threads)
                    for worker in counter.workers:
                        group.create_task(worker.run())
                    _log.info("platform_served", platform=platform, threads=threads)
            change = group.create_task(changed.wait())
            seconds = services.settings.orders.serve_seconds
            await asyncio.wait([stopping, change], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
        listening.cancel()
        _leave_removed_platforms(counters, {}, group)


def _leave_removed_platforms(
    counters: dict[str, WorkersOfOnePlatform], found: Mapping[str, int], group: asyncio.TaskGroup
) -> None:
    """Begin to shut down the workers of platforms that are not found any more: each polls three queues."""
    for platform in counters.keys() - found.keys():
        for worker in counters.pop(platform).workers:
            group.create_task(worker.shutdown())
        _log.info("platform_left", platform=platform)


async def _set_event_at_each_change_of_platforms(services: Services, changed: asyncio.Event) -> None:
    """Set the event whenever platforms or their options have changed, or may have while nobody listened."""
    async for _ in services.database.listen(platforms.CHANNEL):
        changed.set()


async def _load_threads_by_platform_or_none_in_outage(services: Services) -> dict[str, int] | None:
    """Return the configured threads by platform; None while the database is out."""
    try:
        return await platforms.load_threads_by_platform(services.database)
    except DATABASE_ERRORS as error:
        _log.warning("platform_settings_read_failed", error=str(error))
        return None


def _build_worker(
    services: Services, queue: str, activities: Sequence[Callable[..., Any]], tuner: WorkerTuner
) -> Worker:
    return Worker(
        services.engine,
        build_id=BUILD_ID,
        task_queue=queue,
        activities=activities,
        tuner=tuner,
        # One poll at a time: workers take slices in turn, and few beyond a limit that was lowered.
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=services.settings.engine.graceful_shutdown_seconds),
    )


_SINCE_GAUGES: Final = {
    "unserved_since": metrics.PLATFORMS_UNSERVED,
    "clock_failed_since": metrics.CLOCKS_UNREAD,
    "credentials_failed_since": metrics.CREDENTIALS_REFUSED,
}
"""Columns with the time since when a platform is not being fetched, and their gauges."""
_COUNT_GAUGES: Final = {
    "slices_stale": metrics.SLICES_STALE,
    "sweeps_failed": metrics.SWEEPS_FAILED,
    "slices_open": metrics.SLICES_OPEN,
    "slices_failed": metrics.SLICES_FAILED,
}
_AGE_GAUGES: Final = {"claimed_to": metrics.CLAIMED_AGE, "complete_to": metrics.COMPLETE_AGE}
"""Watermarks, and the gauges of how far each is behind the platform's clock; absent before the first claim."""
_GAUGES_SECONDS: Final = 2.0
_GAUGES: Final[tuple[Gauge, ...]] = (*_SINCE_GAUGES.values(), *_COUNT_GAUGES.values(), *_AGE_GAUGES.values())


async def update_gauges_until_stopped(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Update the gauges every few seconds while this process serves workflows or platforms of orders."""
    if names.PLATFORM_QUEUES not in queues and not any(_is_order_queue(queue) for queue in queues):
        return
    shown: set[str] = set()
    while not stop.is_set():
        try:
            shown = await _set_platform_gauges_and_remove_stale(services, shown)
        except DATABASE_ERRORS as error:
            log.get(__name__).warning("platform_gauges_update_failed", error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _GAUGES_SECONDS)


async def _set_platform_gauges_and_remove_stale(services: Services, shown: set[str]) -> set[str]:
    """Set the gauges of all platforms, and remove those of platforms that no longer exist."""
    if not (shown or await platforms.has_platforms(services.database)):
        return shown
    seen = await health.load_platforms_health(services.database)
    for row in seen.rows:
        for column, gauge in _SINCE_GAUGES.items():
            gauge.labels(row.platform).set(getattr(row, column) is not None)
        counts = seen.counts.get(row.platform, OpenAndFailedSliceCounts())
        for name, gauge in _COUNT_GAUGES.items():
            gauge.labels(row.platform).set(getattr(counts, name))
        platform_now = seen.now + timedelta(seconds=row.skew_seconds or 0.0)
        for column, gauge in _AGE_GAUGES.items():
            if (mark := getattr(row, column)) is not None:
                gauge.labels(row.platform).set((platform_now - mark).total_seconds())
    found = {row.platform for row in seen.rows}
    for platform in shown - found:
        for gauge in _GAUGES:
            with suppress(KeyError):
                gauge.remove(platform)
    return found


def _is_order_queue(queue: str) -> bool:
    return queue == names.QUEUE or names.parse_platform_of_slice_queue(queue) is not None
