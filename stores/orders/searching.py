"""Lists of orders: the newest copies of a project's orders, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, true
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from infra.database import Session
from stores.shared import keyset
from stores.tables.orders import Order, OrderPlatform

OrderPlace = tuple[datetime, str, str, str]
"""Where an order stands in a list: when it was modified, its id, platform and shop."""


@dataclass(frozen=True, slots=True)
class OrderFilter:
    """Which orders; None where it does not matter."""

    project_id: str | None = None
    platform: str | None = None
    shop: str | None = None
    order_id: str | None = None
    modified_after: datetime | None = None
    """The moment itself included."""

    modified_before: datetime | None = None


async def list_page(session: Session, wanted: OrderFilter, after: OrderPlace | None, limit: int) -> Sequence[Order]:
    """Orders, those modified last first, and one more if another page follows.

    The newest of each platform are read from its index, and nothing else.
    """
    newest = (
        select(Order)
        .where(col(Order.platform) == col(OrderPlatform.platform), *_conditions(wanted, after))
        .order_by(col(Order.modified_at).desc(), col(Order.order_id).desc(), col(Order.shop).desc())
        .limit(limit + 1)
        .lateral()
    )
    found = aliased(Order, newest)
    statement = select(found).select_from(OrderPlatform).join(newest, true())
    if wanted.project_id is not None:
        statement = statement.where(OrderPlatform.project_id == wanted.project_id)
    if wanted.platform is not None:
        statement = statement.where(OrderPlatform.platform == wanted.platform)
    place = (found.modified_at, found.order_id, found.platform, found.shop)
    return (await session.exec(keyset.select_page(statement, place, None, limit))).all()


def _conditions(wanted: OrderFilter, after: OrderPlace | None) -> list[ColumnElement[bool]]:
    exact = {Order.shop: wanted.shop, Order.order_id: wanted.order_id}
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if wanted.modified_after is not None:
        conditions.append(col(Order.modified_at) >= wanted.modified_after)
    if wanted.modified_before is not None:
        conditions.append(col(Order.modified_at) < wanted.modified_before)
    if after is not None:
        conditions.append(keyset.is_behind((Order.modified_at, Order.order_id, Order.platform, Order.shop), after))
    return conditions
