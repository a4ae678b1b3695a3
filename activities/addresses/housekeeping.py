"""Housekeeping of the room: messages that were done or put away long ago, and the keys of what was taken in."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import text
from temporalio import activity

from domain.addresses import names
from infra import log
from infra.database import Database
from services.services import Services

BATCH: Final = 10_000

# When a row of each table began to be only kept.
_KEPT_SINCE: Final = {
    "im_infi_addr_sync_log_his": "archived_at",
    "addr_sync_keys": "created_at",
    "addr_sync_quarantine": "created_at",
}


class AddressHousekeeping:
    """The activity that keeps the tables of the room to what somebody still wants."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._kept = timedelta(days=services.settings.addresses.kept_days)

    @activity.defn(name=names.PURGE)
    async def purge(self) -> None:
        """Remove what is past its time, some at a time."""
        purged = {table: await _purge(self._database, table, since, self._kept) for table, since in _KEPT_SINCE.items()}
        if any(purged.values()):
            log.get(__name__).info("addresses_purged", **purged)


async def _purge(database: Database, table: str, since: str, kept: timedelta) -> int:
    past = f"SELECT ctid FROM {table} WHERE {since} < now() - CAST(:kept AS interval) LIMIT :batch"  # noqa: S608 - names of ours
    statement = text(f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({past}))")  # noqa: S608 - names of ours
    purged = 0
    while True:
        async with database.session() as session:
            done = await (await session.connection()).execute(statement, {"kept": kept, "batch": BATCH})
        activity.heartbeat()
        purged += done.rowcount
        if done.rowcount < BATCH:
            return purged
