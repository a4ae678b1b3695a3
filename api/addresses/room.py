"""The room: where its routes are declared, and where what is pushed becomes rows."""

from __future__ import annotations

from aiohttp import web

from api.addresses.pushed import PUSHED, Pushed
from api.routes import Routes
from infra.services import Services


def _attach(app: web.Application, services: Services) -> None:
    pushed = app[PUSHED] = Pushed(services)

    async def close(_: web.Application) -> None:
        await pushed.close()

    app.on_cleanup.append(close)


routes = Routes("addresses", "Changes of addresses are applied once, in order, in every module.", attach=_attach)
