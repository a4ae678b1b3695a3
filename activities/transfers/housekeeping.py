"""Housekeeping of the transfers room: jobs that nobody may ask about any more."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from temporalio import activity

from activities.removal import remove_in_batches
from domain.transfers import names
from infra import log
from services.services import Services
from stores.transfers import ledger

BATCH = 10
"""A large job has 100,000 targets."""
CANCELS_KEPT = timedelta(days=1)
JOBS_KNOWN = timedelta(days=7)
"""How long it is still said of a job that it was there, after its targets are gone."""


class TransferHousekeeping:
    """The activity that keeps the record of transfers short."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name=names.PURGE)
    async def purge(self) -> int:
        """Remove jobs whose time is over, some at a time; tell how many."""
        purged = await remove_in_batches(partial(ledger.purge, self._database), BATCH)
        await ledger.forget(self._database, JOBS_KNOWN)
        await ledger.purge_cancels(self._database, CANCELS_KEPT)
        if purged:
            log.get(__name__).info("transfers_purged", jobs=purged)
        return purged
