"""Housekeeping of the room: messages that were done or put away long ago, and the keys of what was taken in."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

from temporalio import activity

from activities.removal import remove_in_batches
from domain.addresses import names
from infra import log
from services.services import Services
from stores.addresses import archiving

BATCH: Final = 10_000


class AddressHousekeeping:
    """The activity that keeps the tables of the room to what somebody still wants."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._kept = timedelta(days=services.settings.addresses.kept_days)

    @activity.defn(name=names.PURGE)
    async def purge(self) -> None:
        """Remove what is past its time, some at a time."""
        purged = {table: await self._purge(table) for table in archiving.KEPT_TABLES}
        if any(purged.values()):
            log.get(__name__).info("addresses_purged", **purged)

    async def _purge(self, table: str) -> int:
        return await remove_in_batches(partial(archiving.purge, self._database, table, self._kept), BATCH)
