"""Orders themselves: a project's newest copies, page by page."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Self

from aiohttp import web
from pydantic import AwareDatetime, Field, JsonValue, model_validator

from api.http import pagination, timestamps
from api.http.models import Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import JSON, Access, Call
from api.http.timestamps import QueryTimestamp
from api.orders.room import routes
from domain.faults import Invalid
from domain.orders import names
from stores.orders import search
from stores.orders.search import OrderFilter
from stores.tables.orders import Order


class Wanted(PageQuery):
    """Which orders to list."""

    platform: str | None = Field(default=None, pattern=names.PLATFORM_PATTERN)
    shop: str | None = Field(default=None, max_length=200)
    order_id: str | None = Field(default=None, max_length=200)
    modified_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    modified_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.modified_after, self.modified_before, ("modified_after", "modified_before")
        )
        return self


class ShownOrder(Response):
    """An order, as its platform told it last."""

    platform: str
    shop: str
    order_id: str
    modified_at: AwareDatetime
    version: int
    order: JsonValue


@routes.get("/v1/orders", access=Access.PROJECTS, problems={"cursor_invalid": Invalid})
async def browse(call: Call, query: Wanted) -> PageResponse[ShownOrder] | web.Response:
    """List your orders, those modified last first; each as its platform wrote it, to the last digit.

    The admin key that names no project lists everybody's.
    """
    wanted = OrderFilter(
        project_id=call.scope,
        platform=query.platform,
        shop=query.shop,
        order_id=query.order_id,
        modified_after=query.modified_after,
        modified_before=query.modified_before,
    )
    after = query.after and (query.after[0], *_opened(query.after[1]))
    async with call.services.database.session() as session:
        rows = await search.list_page(session, wanted, after, query.limit)
    shown = rows[: query.limit]
    more = pagination.encode_cursor((shown[-1].modified_at, _named(shown[-1]))) if len(rows) > query.limit else None
    body = f'{{"items":[{",".join(map(_written, shown))}],"next_cursor":{json.dumps(more)}}}'
    return web.Response(text=body, content_type=JSON)


def _written(row: Order) -> str:
    """An order as JSON; what the platform wrote is not read, because reading it would round numbers."""
    shown = ShownOrder.model_construct(
        **{name: getattr(row, name) for name in ShownOrder.model_fields if name != "order"}
    )
    return f'{shown.model_dump_json(exclude={"order"})[:-1]},"order":{row.raw}}}'


def _named(row: Order) -> str:
    """An order in the characters that a cursor may hold."""
    return base64.urlsafe_b64encode("\n".join((row.order_id, row.platform, row.shop)).encode()).decode().rstrip("=")


def _opened(name: str) -> tuple[str, str, str]:
    try:
        text = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    order_id, _, rest = text.partition("\n")
    platform, _, shop = rest.partition("\n")
    if not platform:
        raise Invalid("cursor_invalid", "This cursor is not one of this list.", "Send next_cursor of the page before.")
    return order_id, platform, shop
