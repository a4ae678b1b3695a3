"""Reads of stored orders: lists of the newest copies, their versions, and snapshots of an earlier revision."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import BigInteger, ColumnElement, Text, bindparam, text, true
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from domain.orders.windows import TimeWindow
from infra.database import Database, Session
from stores import keyset
from stores.keyset import SqlKeyset
from stores.tables.orders import Order, OrderPlatform

OrderPosition = tuple[datetime, str, str, str]
"""Position of an order in a list: its time of modification, id, platform and shop."""


@dataclass(frozen=True, slots=True)
class OrderFilter:
    """Filter of orders; None matches all."""

    project_id: str | None = None
    platform: str | None = None
    shop: str | None = None
    order_id: str | None = None
    modified_after: datetime | None = None
    """Inclusive."""

    modified_before: datetime | None = None


async def list_page(session: Session, wanted: OrderFilter, after: OrderPosition | None, limit: int) -> Sequence[Order]:
    """List orders, last modified first, and one more if another page follows.

    The newest of each platform are read from its index, and nothing else.
    """
    newest = (
        select(Order)
        .where(col(Order.platform) == col(OrderPlatform.platform), *_build_conditions(wanted, after))
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


def _build_conditions(wanted: OrderFilter, after: OrderPosition | None) -> list[ColumnElement[bool]]:
    exact = {Order.shop: wanted.shop, Order.order_id: wanted.order_id}
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if wanted.modified_after is not None:
        conditions.append(col(Order.modified_at) >= wanted.modified_after)
    if wanted.modified_before is not None:
        conditions.append(col(Order.modified_at) < wanted.modified_before)
    if after is not None:
        conditions.append(keyset.is_behind((Order.modified_at, Order.order_id, Order.platform, Order.shop), after))
    return conditions


IDS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class OrderVersion:
    """Time of modification and version of an order."""

    modified_at: datetime
    version: int


OrderVersions: TypeAlias = Mapping[str, OrderVersion]


async def read_versions(database: Database, platform: str, window: TimeWindow) -> OrderVersions:
    """Return the versions of a platform's orders that were modified in a window."""
    statement = select(Order.order_id, Order.modified_at, Order.version).where(
        Order.platform == platform, col(Order.modified_at) >= window.start, col(Order.modified_at) < window.end
    )
    async with database.session() as session:
        return {row[0]: OrderVersion(row[1], row[2]) for row in await session.exec(statement)}


async def find_versions(database: Database, platform: str, order_ids: Collection[str]) -> OrderVersions:
    """Return the versions of those of these orders that are stored."""
    ids, lines = sorted(order_ids), dict[str, OrderVersion]()
    async with database.session() as session:
        for start in range(0, len(ids), IDS_AT_ONCE):
            statement = select(Order.order_id, Order.modified_at, Order.version).where(
                Order.platform == platform, col(Order.order_id).in_(ids[start : start + IDS_AT_ONCE])
            )
            lines |= {row[0]: OrderVersion(row[1], row[2]) for row in await session.exec(statement)}
    return lines


_SNAPSHOT: Final = """
FROM (
    SELECT shop, order_id, modified_at, version, raw FROM orders
    WHERE platform = :platform AND revision <= :revision {behind}
    UNION ALL
    SELECT shop, order_id, modified_at, version, raw FROM order_copies
    WHERE platform = :platform AND revision <= :revision AND until_revision > :revision {behind}
) AS frozen
WHERE modified_at >= coalesce(:after, '-infinity'::timestamptz)
    AND modified_at < coalesce(:before, 'infinity'::timestamptz)
"""
_ROW: Final = """
SELECT shop, order_id, json_build_object(
    'platform', CAST(:platform AS text), 'shop', shop, 'order_id', order_id,
    'modified_at', to_char(modified_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'version', version,
    'order', raw::json
)::text AS row
"""
_PLACE: Final = SqlKeyset(("shop", "order_id"), is_descending=False)
_ORDER: Final = f"{_PLACE.order_by} LIMIT :size OFFSET :skipped"
_BOUND: Final = (bindparam("revision", type_=BigInteger), bindparam("platform", type_=Text))
_COUNT: Final = text(f"SELECT count(*) {_SNAPSHOT.format(behind='')}").bindparams(*_BOUND)
_PAGE: Final = text(_ROW + _SNAPSHOT.format(behind="") + _ORDER).bindparams(*_BOUND)
_PAGE_BEHIND: Final = text(
    _ROW + _SNAPSHOT.format(behind=f"AND {_PLACE.format_behind(':last_shop', ':last_order_id')}") + _ORDER
).bindparams(*_BOUND)


@dataclass(frozen=True, slots=True)
class OrderSnapshot:
    """Orders of a platform as of a revision."""

    platform: str
    revision: int
    after: datetime | None = None
    before: datetime | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the statements."""
        return {"platform": self.platform, "revision": self.revision, "after": self.after, "before": self.before}


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """An order as of a revision."""

    shop: str
    order_id: str
    text: str
    """Its JSON, with the platform's text as received."""


async def count_snapshot(database: Database, excerpt: OrderSnapshot) -> int:
    """Count the orders of a snapshot."""
    async with database.session() as session:
        return int((await session.execute(_COUNT, excerpt.parameters)).scalar_one())


async def list_snapshot(
    database: Database, excerpt: OrderSnapshot, size: int, *, skipped: int = 0, behind: tuple[str, str] | None = None
) -> list[SnapshotOrder]:
    """List the orders of a snapshot by shop and id.

    Args:
        skipped: Orders before the first one. Skipping them costs as much as reading them.
        behind: Shop and id of the order before the first one, where known, instead: that costs nothing.
    """
    parameters: dict[str, Any] = {**excerpt.parameters, "size": size, "skipped": 0 if behind else skipped}
    if behind:
        parameters |= {"last_shop": behind[0], "last_order_id": behind[1]}
    async with database.session() as session:
        rows = (await session.execute(_PAGE_BEHIND if behind else _PAGE, parameters)).all()
    return [SnapshotOrder(row.shop, row.order_id, row.row) for row in rows]
