"""Orders themselves: a project's newest copies, page by page."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Self

from aiohttp import web
from pydantic import AwareDatetime, Field, JsonValue, model_validator
from sqlalchemy import ColumnElement, true
from sqlalchemy.orm import aliased
from sqlmodel import col, select, tuple_
from sqlmodel.sql.expression import SelectOfScalar

from api import moments, paging
from api.models import Answer
from api.moments import Moment
from api.orders.room import routes
from api.paging import Page, PageQuery
from api.routes import JSON, Access, Call
from domain.faults import Invalid
from domain.orders import names
from stores.tables.orders import Order, OrderPlatform


class Wanted(PageQuery):
    """Which orders to list."""

    platform: str | None = Field(default=None, pattern=names.PLATFORM_PATTERN)
    shop: str | None = Field(default=None, max_length=200)
    order_id: str | None = Field(default=None, max_length=200)
    modified_after: Moment | None = Field(default=None, description="at or after this time")
    modified_before: Moment | None = Field(default=None, description="before this time")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        moments.require_order(self.modified_after, self.modified_before, ("modified_after", "modified_before"))
        return self


class ShownOrder(Answer):
    """An order, as its platform told it last."""

    platform: str
    shop: str
    order_id: str
    modified_at: AwareDatetime
    version: int
    order: JsonValue


@routes.get("/v1/orders", access=Access.PROJECTS, problems={"cursor_invalid": Invalid})
async def browse(call: Call, query: Wanted) -> Page[ShownOrder] | web.Response:
    """List your orders, those modified last first; each as its platform wrote it, to the last digit.

    The admin key that names no project lists everybody's.
    """
    async with call.services.database.session() as session:
        rows = (await session.exec(_wanted(query, call.scope))).all()
    shown = rows[: query.limit]
    more = paging.encode((shown[-1].modified_at, _named(shown[-1]))) if len(rows) > query.limit else None
    body = f'{{"items":[{",".join(map(_written, shown))}],"next_cursor":{json.dumps(more)}}}'
    return web.Response(text=body, content_type=JSON)


def _wanted(query: Wanted, project_id: str | None) -> SelectOfScalar[Order]:
    """The newest of each platform, from its index, and of these the newest: nothing else is read."""
    newest = (
        select(Order)
        .where(col(Order.platform) == col(OrderPlatform.platform), *_conditions(query))
        .order_by(col(Order.modified_at).desc(), col(Order.order_id).desc(), col(Order.shop).desc())
        .limit(query.limit + 1)
        .lateral()
    )
    found = aliased(Order, newest)
    statement = select(found).select_from(OrderPlatform).join(newest, true())
    if project_id is not None:
        statement = statement.where(OrderPlatform.project_id == project_id)
    if query.platform is not None:
        statement = statement.where(OrderPlatform.platform == query.platform)
    place = (found.modified_at, found.order_id, found.platform, found.shop)
    return statement.order_by(*(col(each).desc() for each in place)).limit(query.limit + 1)


def _conditions(query: Wanted) -> list[ColumnElement[bool]]:
    exact = {Order.shop: query.shop, Order.order_id: query.order_id}
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if query.modified_after is not None:
        conditions.append(col(Order.modified_at) >= query.modified_after)
    if query.modified_before is not None:
        conditions.append(col(Order.modified_at) < query.modified_before)
    if query.after:
        moment, name = query.after
        place = (Order.modified_at, Order.order_id, Order.platform, Order.shop)
        conditions.append(tuple_(*place) < (moment, *_opened(name)))
    return conditions


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
