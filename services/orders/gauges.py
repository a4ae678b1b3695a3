"""Gauges of platforms that stand still: each process reads them from the database, so that none keeps an old one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from prometheus_client import Gauge

from domain.orders import names
from infra import log, metrics
from infra.database import DATABASE_ERRORS
from services.services import Services
from stores.orders import health

_SINCE: Final = {
    "unserved_since": metrics.PLATFORMS_UNSERVED,
    "clock_failed_since": metrics.CLOCKS_UNREAD,
    "credentials_failed_since": metrics.CREDENTIALS_REFUSED,
}
"""Columns that say since when a platform stands still, and the gauges that show it."""
_GAUGES: Final[tuple[Gauge, ...]] = (*_SINCE.values(), metrics.SLICES_STALE, metrics.SWEEPS_FAILED)


async def keep(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Renew the gauges every few seconds while this process serves plans or platforms of orders."""
    if names.PLATFORM_QUEUES not in queues and not any(_is_of_orders(queue) for queue in queues):
        return
    shown: set[str] = set()
    while not stop.is_set():
        try:
            shown = await _renew(services, shown)
        except DATABASE_ERRORS as error:
            log.get(__name__).warning("platform_gauges_not_read", error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), services.settings.orders.serve_seconds)


async def _renew(services: Services, shown: set[str]) -> set[str]:
    """Set the gauges of all platforms, and take away those of platforms that are no more."""
    seen = await health.read_health(services.database)
    for row in seen.rows:
        for column, gauge in _SINCE.items():
            gauge.labels(row.platform).set(getattr(row, column) is not None)
        metrics.SLICES_STALE.labels(row.platform).set(seen.stale.get(row.platform, 0))
        metrics.SWEEPS_FAILED.labels(row.platform).set(seen.sweeps_failed.get(row.platform, 0))
    found = {row.platform for row in seen.rows}
    for platform in shown - found:
        for gauge in _GAUGES:
            gauge.remove(platform)
    return found


def _is_of_orders(queue: str) -> bool:
    return queue == names.QUEUE or names.served_platform(queue) is not None
