"""What the routes of addresses share: settings in force, the trigger of cycles, and the inbox of pushed messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web

from api.addresses import overview
from api.batching import BatchedLookup
from api.http.routes import Call, Routes
from api.pauses import RESUME_HOOKS
from domain.addresses import names
from infra.address_settings import AddressSettings
from services import addresses
from services.addresses import CycleTrigger
from services.services import Services
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter

INT64_MAX: Final = 2**63 - 1
PUSH_BATCH_MAX: Final = 500


class BatchingPushInbox:
    """Stores pushed messages in batches: those that arrive while a batch is written form the next."""

    def __init__(self, services: Services, trigger: CycleTrigger) -> None:
        self._inbox = MessageLogAndQuarantineWriter(services.database, services.settings.addresses.message_max_bytes)
        self._trigger = trigger
        self._batches = BatchedLookup(self._store_batch_and_mark_all_stored, PUSH_BATCH_MAX)

    async def store_together_with_other_pushes(self, message: DeliveredMessage) -> None:
        """Return when the message is durable: in the log, in it before, or in quarantine."""
        await self._batches.look_up_in_next_batch(message)

    async def _store_batch_and_mark_all_stored(
        self, batch: Sequence[DeliveredMessage]
    ) -> Mapping[DeliveredMessage, bool]:
        result = await self._inbox.store_messages_or_quarantine_them(batch)
        if result.new:
            self._trigger.request_cycle()
        return dict.fromkeys(batch, True)


PUSH_INBOX = web.AppKey("pushed", BatchingPushInbox)

CYCLE_TRIGGER = web.AppKey("trigger", CycleTrigger)


def _attach_inbox_cycle_trigger_and_gauges(app: web.Application, services: Services) -> None:
    trigger = app[CYCLE_TRIGGER] = CycleTrigger(services.engine, services.settings.addresses.pause_seconds)
    app[PUSH_INBOX] = BatchingPushInbox(services, trigger)

    async def request_cycle_on_resume() -> None:
        trigger.request_cycle()

    app[RESUME_HOOKS][names.SYSTEM] = request_cycle_on_resume

    async def update_gauges_while_serving(_: web.Application) -> AsyncIterator[None]:
        gauges = asyncio.create_task(overview.update_gauges_forever(services.database, services.settings.addresses))
        yield
        gauges.cancel()
        with suppress(asyncio.CancelledError):
            await gauges
        await trigger.close()

    app.cleanup_ctx.append(update_gauges_while_serving)


async def load_effective_settings(call: Call) -> AddressSettings:
    """Return the settings in force."""
    return await addresses.load_effective_settings(call.services.database, call.services.settings.addresses)


routes = Routes(
    "addresses",
    "Changes of addresses, applied once and in order in every module.",
    attach=_attach_inbox_cycle_trigger_and_gauges,
)
