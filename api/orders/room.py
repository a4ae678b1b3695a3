"""The room: where its routes are declared, and how a platform is named in them."""

from __future__ import annotations

from pydantic import Field

from api.models import Request
from api.routes import Routes
from domain.orders import places

routes = Routes("orders", "Orders are fetched from every platform in slices of time, none lost.")


class PlatformPath(Request):
    """Names one platform: the number that you gave it."""

    platform: str = Field(pattern=places.PLATFORM_PATTERN)
