"""The steps of a delivery: enter it, and attempt it."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

from temporalio import activity

from clients.http import GuardedClient
from clients.receivers import ReceiverClient
from domain.sealed import SealedText
from domain.webhooks import deliveries
from domain.webhooks.deliveries import AttemptOrder, DeliveryState, Progress, WebhookOrder
from infra import heartbeats, log
from infra.database import Database
from infra.sealing import Sealer
from infra.settings import WebhookSettings
from stores.webhooks import ledger, signing


class WebhookSteps:
    """The activities of webhooks, with the clients they work with."""

    def __init__(self, database: Database, http: GuardedClient, sealer: Sealer, settings: WebhookSettings) -> None:
        self._database = database
        self._receivers = ReceiverClient(http, settings.timeout_seconds)
        self._sealer = sealer
        self._settings = settings

    @activity.defn(name="webhook_enter")
    async def enter(self, order: WebhookOrder) -> DeliveryState:
        """Enter the delivery into the ledger."""
        return await ledger.enter(self._database, order, self._sealer.open(order.url))

    @activity.defn(name="webhook_attempt")
    async def attempt(self, order: AttemptOrder) -> Progress:
        """Post the event once and book how it went.

        A process that dies between the two posts again: a receiver tells by `webhook-id` what it has seen.
        """
        delivery = await ledger.read(self._database, order.delivery_id)
        secrets = await signing.texts(self._database, self._sealer, delivery.project_id)
        moment, began = datetime.now(UTC), time.perf_counter()
        url, body = self._sealer.open(SealedText(token=delivery.url)), delivery.body.encode()
        headers = deliveries.headers(delivery.delivery_id, moment, body, secrets)
        async with heartbeats.beating():
            answered = await self._receivers.post(url, body, headers, moment)
        seconds = time.perf_counter() - began
        progress = deliveries.judge(order.number, answered, self._settings.retry_pauses_seconds, random.random())
        await ledger.book(self._database, order.delivery_id, moment, seconds, progress)
        log.get(__name__).info(
            "webhook_attempted",
            receiver=delivery.receiver,
            status=progress.status,
            state=progress.state,
            pause_seconds=progress.pause_seconds,
        )
        return progress
