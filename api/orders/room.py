"""The room: where its routes are declared, and how a platform is named in them."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from api.http.models import Request
from api.http.routes import Routes
from api.orders.frozen import FROZEN, Frozen
from domain.orders import names
from services.services import Services


def _attach(app: web.Application, services: Services) -> None:
    app[FROZEN] = Frozen(services.database)


routes = Routes("orders", "Orders are fetched from every platform in slices of time, none lost.", attach=_attach)


class PlatformPath(Request):
    """Names one platform: the number that you gave it."""

    platform: str = Field(pattern=names.PLATFORM_PATTERN)
