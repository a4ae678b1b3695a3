"""Which version of each order is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from sqlmodel import col, select

from domain.orders.windows import TimeWindow
from infra.database import Database
from stores.tables.orders import Order

IDS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """An order as one side has it."""

    modified_at: datetime
    version: int


Side: TypeAlias = Mapping[str, Line]


async def read_window(database: Database, platform: str, window: TimeWindow) -> Side:
    """The orders of a platform that were modified in a window."""
    statement = select(Order.order_id, Order.modified_at, Order.version).where(
        Order.platform == platform, col(Order.modified_at) >= window.start, col(Order.modified_at) < window.end
    )
    async with database.session() as session:
        return {row[0]: Line(row[1], row[2]) for row in await session.exec(statement)}


async def find(database: Database, platform: str, order_ids: Collection[str]) -> Side:
    """Those of these orders of a platform that are stored."""
    ids, lines = sorted(order_ids), dict[str, Line]()
    async with database.session() as session:
        for start in range(0, len(ids), IDS_AT_ONCE):
            statement = select(Order.order_id, Order.modified_at, Order.version).where(
                Order.platform == platform, col(Order.order_id).in_(ids[start : start + IDS_AT_ONCE])
            )
            lines |= {row[0]: Line(row[1], row[2]) for row in await session.exec(statement)}
    return lines
