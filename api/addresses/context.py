"""What the routes of addresses share: settings in force, the trigger of cycles, and the inbox of pushed messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web

from api.addresses import overview
from api.http.routes import Call, Routes
from api.shared_reads import BatchedLookup
from infra.settings import AddressSettings
from services.addresses import configuration
from services.addresses.cycle_trigger import CycleTrigger
from services.services import Services
from stores.addresses.inbox import DeliveredMessage, Inbox

PUSH_BATCH_MAX: Final = 500


class PushInbox:
    """Takes messages in as they come; who comes while a group is being written is in the next."""

    def __init__(self, services: Services, trigger: CycleTrigger) -> None:
        self._inbox = Inbox(services.database, services.settings.addresses.message_max_bytes)
        self._trigger = trigger
        self._groups = BatchedLookup(self._write, PUSH_BATCH_MAX)

    async def store(self, incoming: DeliveredMessage) -> None:
        """Return when the message is durable: in the log, there before, or in quarantine."""
        await self._groups.get(incoming)

    async def _write(self, group: Sequence[DeliveredMessage]) -> Mapping[DeliveredMessage, bool]:
        taken = await self._inbox.store(group)
        if taken.new:
            self._trigger.request_cycle()
        return dict.fromkeys(group, True)


PUSH_INBOX = web.AppKey("pushed", PushInbox)

CYCLE_TRIGGER = web.AppKey("trigger", CycleTrigger)


def _attach(app: web.Application, services: Services) -> None:
    trigger = app[CYCLE_TRIGGER] = CycleTrigger(services.engine)
    app[PUSH_INBOX] = PushInbox(services, trigger)

    async def serving(_: web.Application) -> AsyncIterator[None]:
        figures = asyncio.create_task(overview.update_gauges(services.database, services.settings.addresses))
        yield
        figures.cancel()
        with suppress(asyncio.CancelledError):
            await figures
        await trigger.close()

    app.cleanup_ctx.append(serving)


async def load_settings(call: Call) -> AddressSettings:
    """The settings of this moment: what operators set, over what the environment says."""
    return await configuration.load_settings(call.services.database, call.services.settings.addresses)


routes = Routes("addresses", "Changes of addresses are applied once, in order, in every module.", attach=_attach)
