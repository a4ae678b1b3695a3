"""The room: where its routes are declared, and where what is pushed becomes rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from api.addresses import watching
from api.addresses.pushed import PUSHED, Pushed
from api.http.routes import Call, Routes
from infra.settings import AddressSettings
from services.addresses import configuration
from services.addresses.cycle_trigger import CycleTrigger
from services.services import Services

WAKER = web.AppKey("waker", CycleTrigger)


def _attach(app: web.Application, services: Services) -> None:
    waker = app[WAKER] = CycleTrigger(services.engine)
    app[PUSHED] = Pushed(services, waker)

    async def serving(_: web.Application) -> AsyncIterator[None]:
        figures = asyncio.create_task(watching.show(services.database, services.settings.addresses))
        yield
        figures.cancel()
        with suppress(asyncio.CancelledError):
            await figures
        await waker.close()

    app.cleanup_ctx.append(serving)


async def in_force(call: Call) -> AddressSettings:
    """The settings of this moment: what operators set, over what the environment says."""
    return await configuration.load_settings(call.services.database, call.services.settings.addresses)


routes = Routes("addresses", "Changes of addresses are applied once, in order, in every module.", attach=_attach)
