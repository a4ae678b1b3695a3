"""Housekeeping of the webhook room: deliveries that nobody will ask about any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from temporalio import activity

from activities.removal import remove_in_batches
from domain.webhooks import names
from infra import log
from services.services import Services
from stores.webhooks import ledger

BATCH = 1_000


class WebhookHousekeeping:
    """The activity that keeps the ledger of deliveries short."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._kept = timedelta(days=services.settings.webhooks.kept_days)

    @activity.defn(name=names.PURGE)
    async def purge(self) -> int:
        """Remove what ended long ago, with its attempts, a batch at a time; tell how many deliveries that were."""
        before = datetime.now(UTC) - self._kept
        purged = await remove_in_batches(partial(ledger.purge, self._database, before), BATCH)
        if purged:
            log.get(__name__).info("deliveries_purged", deliveries=purged)
        return purged
