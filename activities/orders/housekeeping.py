"""Housekeeping of orders: replaced copies that no export needs, and raw pages past their retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from temporalio import activity

from domain.orders import names
from infra import log
from infra.housekeeping import remove_in_batches
from infra.limits import Limiter
from services.services import Services
from stores.orders import order_copies

BATCH: Final = 10_000
STAGED_DAYS: Final = 7
"""Longer than a slice may wait between two attempts."""


class OrderHousekeeping:
    """Activities that delete rows and objects past their retention."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._settings = services.settings.orders

    @activity.defn(name=names.PURGE)
    async def purge(self) -> None:
        """Delete copies, raw pages and staged answers past their retention."""
        await Limiter(self._database).delete_expired()
        kept = timedelta(days=self._settings.copies_kept_days)
        copies = await remove_in_batches(partial(order_copies.purge, self._database, kept), BATCH)
        pages = await self._purge_objects(names.RAW, self._settings.raw_kept_days)
        pages += await self._purge_objects(names.STAGING, STAGED_DAYS)
        if copies or pages:
            log.get(__name__).info("orders_purged", copies=copies, pages=pages)

    async def _purge_objects(self, prefix: str, days: int) -> int:
        before = datetime.now(UTC) - timedelta(days=days)
        past = [each.key for each in await self._objects.list(prefix) if each.modified < before]
        for key in past:
            await self._objects.delete(key)
            activity.heartbeat()
        return len(past)
