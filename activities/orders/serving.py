"""Serving platforms: workers for the queues of those that this process was told to serve, threads as configured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

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

from activities.orders.reporting import OrderReporting
from activities.orders.steps import PlatformSteps
from domain.orders import names
from infra import log
from infra.database import DATABASE_ERRORS
from infra.temporal import BUILD_ID
from services.services import Services
from stores.orders import platforms

DESK_SLOTS: Final = 20
IDLE_SLOTS: Final = 5
REPORT_SLOTS: Final = 1

_log = log.get(__name__)


class Threads(CustomSlotSupplier):
    """Slots whose number changes while they are used: a raised limit acts at once, a lowered one as slices end.

    The SDK gives slots back from threads of its own.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def allow(self, limit: int) -> None:
        """Change how many slices are read at a time."""
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


class Counter:
    """One platform that this process serves: slices, comparisons beside them, and a desk that answers at once."""

    def __init__(self, services: Services, steps: PlatformSteps, platform: str, threads: int) -> None:
        self.threads = Threads(threads)
        reporting = OrderReporting(services, steps)
        desk = WorkerTuner.create_fixed(activity_slots=DESK_SLOTS)
        reports = WorkerTuner.create_fixed(activity_slots=REPORT_SLOTS)
        reading = WorkerTuner.create_composite(
            workflow_supplier=FixedSizeSlotSupplier(IDLE_SLOTS),
            activity_supplier=self.threads,
            local_activity_supplier=FixedSizeSlotSupplier(IDLE_SLOTS),
            nexus_supplier=FixedSizeSlotSupplier(IDLE_SLOTS),
        )
        self.workers = (
            _worker(services, names.desk_queue(platform), [steps.clock, steps.presence], desk),
            _worker(services, names.report_queue(platform), [reporting.read, reporting.write], reports),
            _worker(services, names.slice_queue(platform), [steps.read], reading),
        )


async def serve(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Serve the platforms among these queues until told to stop; those that are new are soon served too."""
    named = {platform for queue in queues if (platform := names.served_platform(queue))}
    if not named and names.PLATFORM_QUEUES not in queues:
        return
    steps, counters = PlatformSteps(services), dict[str, Counter]()
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            for platform, threads in (await _threads(services)).items():
                if platform in counters:
                    counters[platform].threads.allow(threads)
                elif platform in named or names.PLATFORM_QUEUES in queues:
                    counters[platform] = counter = Counter(services, steps, platform, threads)
                    for worker in counter.workers:
                        group.create_task(worker.run())
                    _log.info("platform_served", platform=platform, threads=threads)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), services.settings.orders.serve_seconds)
        for counter in counters.values():
            for worker in counter.workers:
                group.create_task(worker.shutdown())


async def _threads(services: Services) -> dict[str, int]:
    """How many slices of each platform are read at a time; an outage of the database changes nothing."""
    try:
        return await platforms.read_threads(services.database)
    except DATABASE_ERRORS as error:
        _log.warning("platforms_not_read", error=str(error))
        return {}


def _worker(services: Services, queue: str, activities: Sequence[Callable[..., Any]], tuner: WorkerTuner) -> Worker:
    return Worker(
        services.engine,
        build_id=BUILD_ID,
        task_queue=queue,
        activities=activities,
        tuner=tuner,
        # One poll at a time: slices come to all workers in turn, and few are taken beyond a limit that was lowered.
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=services.settings.engine.graceful_shutdown_seconds),
    )
