"""Orders in PostgreSQL: the newest copy wins, whatever the sequence of writes; lists, versions, and snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    ColumnElement,
    DateTime,
    LargeBinary,
    Text,
    bindparam,
    delete,
    text,
    true,
)
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import case, cast, col, func, select, tuple_

from domain.orders.access import Account
from domain.orders.windows import TimeWindow
from infra.database import Database, Session
from stores import keyset
from stores.keyset import SqlOrderAndAfterCondition
from stores.orders.fetched_orders import COLUMNS, FetchedOrder, RankAndDigest, encode_rows_for_copy
from stores.tables.orders import Order, OrderPlatform, ReplacedOrderRevision
from stores.tables.orders import Order as OrderRow

BATCH: Final = 2_000
COPY_BATCH: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of the orders that are encoded at once: their bytes exist three times until they are written."""
MARK_MARGIN: Final = timedelta(hours=1)
"""How much longer than a mark is good the copies that it names are kept: a mark ends by the clock of an API, a copy was
replaced at the beginning of a transaction, which may have waited, and a page of an export is under way for a while."""

PAGE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of the orders of a page of a list; one order alone may be larger."""

_TIMES = ARRAY(DateTime(timezone=True))
_ACCOUNT = (bindparam("platform", type_=Text), bindparam("shop", type_=Text))
# Order by order, by the primary key. If the platform were visible to the planner, it would consider one that was set up
# after the last ANALYZE empty, and read all of its orders each time.
_STORED = (
    "SELECT * FROM orders WHERE platform = (SELECT :platform) AND shop = (SELECT :shop) "
    "AND orders.order_id = wanted.order_id OFFSET 0"
)
_KNOWN = text(
    "SELECT ours.order_id, modified_at, version, asked_at, digest, revision "  # noqa: S608 (all of it is written here)
    f"FROM unnest(:ids) AS wanted (order_id) CROSS JOIN LATERAL ({_STORED}) AS ours"
).bindparams(*_ACCOUNT, bindparam("ids", type_=ARRAY(Text)))
_KEEP = text(
    "INSERT INTO order_copies "  # noqa: S608 (all of it is written here)
    "(platform, shop, order_id, revision, until_revision, modified_at, version, raw) "
    "SELECT platform, shop, ours.order_id, revision, :revision, modified_at, version, raw "
    f"FROM unnest(:ids) AS wanted (order_id) CROSS JOIN LATERAL ({_STORED}) AS ours"
).bindparams(*_ACCOUNT, bindparam("ids", type_=ARRAY(Text)), bindparam("revision", type_=BigInteger))
_REPLACE = text(
    "UPDATE orders SET modified_at = newer.modified_at, version = newer.version, digest = newer.digest, "
    "raw = newer.raw, asked_at = newer.asked_at, revision = :revision "
    "FROM unnest(:ids, :modified, :versions, :digests, :raws, :asked) "
    "AS newer (order_id, modified_at, version, digest, raw, asked_at) "
    "WHERE orders.platform = (SELECT :platform) AND orders.shop = (SELECT :shop) "
    "AND orders.order_id = newer.order_id"
).bindparams(
    *_ACCOUNT,
    bindparam("ids", type_=ARRAY(Text)),
    bindparam("modified", type_=_TIMES),
    bindparam("versions", type_=ARRAY(BigInteger)),
    bindparam("digests", type_=ARRAY(LargeBinary)),
    bindparam("raws", type_=ARRAY(Text)),
    bindparam("asked", type_=_TIMES),
    bindparam("revision", type_=BigInteger),
)


class ChangedOrderTimes(msgspec.Struct, frozen=True, gc=False):
    """An order that a commit inserted or replaced."""

    modified_at: datetime
    modified_before: datetime | None

    @property
    def advances_modified_at(self) -> bool:
        """Whether the order was unknown, or only stored with an earlier time."""
        return self.modified_before is None or self.modified_before < self.modified_at


async def write_copies_newer_than_stored(
    session: Session,
    account: Account,
    revision: int,
    copies: Sequence[FetchedOrder],
    declared_revision: int = 0,
    *,
    rewrites_same: bool = False,
) -> list[ChangedOrderTimes]:
    """Write copies that are newer than the stored ones, and keep what they replace. The platform's row must be locked.

    The lock excludes other writers of the account's orders, so reading first is safe: new orders are then written by
    COPY, which costs PostgreSQL a tenth of an insert that has to expect a conflict.

    Args:
        declared_revision: Revision up to which orders were read by a former declaration of their id, times or version.
        rewrites_same: Whether such an order is written anew even if it is the same; else its details, where it has any,
            would be fetched each time that it is listed.
    """
    found: dict[str, RankAndDigest] = {}
    for batch in _split_batches(copies):
        found |= await _load_stored(session, account, batch)
    new = [each for each in copies if each.order.order_id not in found]
    newer = [
        each
        for each in copies
        if (old := found.get(each.order.order_id))
        and (each.replaces(old, declared_revision) or (rewrites_same and old.revision <= declared_revision))
    ]
    for batch in _split_batches(sorted(new, key=lambda each: each.order.order_id), COPY_BATCH):
        await session.copy_rows_into(
            OrderRow.__tablename__, COLUMNS, await asyncio.to_thread(encode_rows_for_copy, account, revision, batch)
        )
    for batch in _split_batches(newer):
        await _keep_replaced_copies_and_write_new(session, account, revision, batch)
    changes = [ChangedOrderTimes(each.order.modified_at, None) for each in new]
    return changes + [ChangedOrderTimes(each.order.modified_at, found[each.order.order_id].rank[0]) for each in newer]


async def list_ids_stored_at_least_as_new(
    database: Database, account: Account, copies: Sequence[FetchedOrder], declared_revision: int = 0
) -> set[str]:
    """Return the ids of orders that are surely stored at least as new, since the declaration was changed last."""
    ids: set[str] = set()
    async with database.session() as session:
        for batch in _split_batches(copies):
            found = await _load_stored(session, account, batch)
            newest = {each.order.order_id: (each.order.modified_at, each.order.version) for each in batch}
            ids |= {
                order_id
                for order_id, stored in found.items()
                if stored.revision > declared_revision and stored.is_at_least_as_new(*newest[order_id])
            }
    return ids


async def delete_expired_replaced_copies(database: Database, kept: timedelta, limit: int) -> int:
    """Delete at most *limit* copies that no mark needs, each of which is good for *kept*; return how many."""
    replaced = ReplacedOrderRevision
    name = (replaced.platform, replaced.shop, replaced.order_id, replaced.revision)
    past = select(*name).where(col(replaced.replaced_at) < func.now() - kept - MARK_MARGIN).limit(limit)
    async with database.session() as session:
        return (await session.exec(delete(replaced).where(tuple_(*name).in_(past)))).rowcount


async def _load_stored(session: Session, account: Account, batch: Sequence[FetchedOrder]) -> dict[str, RankAndDigest]:
    ids = [each.order.order_id for each in batch]
    rows = await session.execute(_KNOWN, {"platform": account.platform, "shop": account.shop, "ids": ids})
    return {
        row.order_id: RankAndDigest((row.modified_at, row.version, row.asked_at), row.digest, row.revision)
        for row in rows
    }


async def _keep_replaced_copies_and_write_new(
    session: Session, account: Account, revision: int, batch: Sequence[FetchedOrder]
) -> None:
    orders = [each.order for each in batch]
    whose = {
        "platform": account.platform,
        "shop": account.shop,
        "revision": revision,
        "ids": [order.order_id for order in orders],
    }
    await session.execute(_KEEP, whose)
    columns = {
        "modified": [order.modified_at for order in orders],
        "versions": [order.version for order in orders],
        "digests": [each.digest for each in batch],
        "raws": [order.raw.decode() for order in orders],
        "asked": [each.asked_at for each in batch],
    }
    await session.execute(_REPLACE, {**whose, **columns})


def _split_batches(copies: Sequence[FetchedOrder], size: int = BATCH) -> Iterator[Sequence[FetchedOrder]]:
    """Yield the copies in batches of at most so many orders, which end after `BATCH_BYTES`."""
    start = volume = 0
    for place, copy in enumerate(copies, 1):
        volume += len(copy.order.raw)
        if place - start == size or volume >= BATCH_BYTES or place == len(copies):
            yield copies[start:place]
            start, volume = place, 0


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
    field_condition: tuple[tuple[str, ...], str] | None = None
    """The path of a field of the order, and its value as text."""


@dataclass(frozen=True, slots=True)
class StoredOrderPage:
    """Orders, last modified first."""

    rows: Sequence[Order]
    has_more: bool
    """Whether another page follows."""


async def list_order_page(
    session: Session, filters: OrderFilter, after: OrderPosition | None, limit: int, max_bytes: int = PAGE_MAX_BYTES
) -> StoredOrderPage:
    """List orders, last modified first, by the indexes of each platform only.

    Args:
        max_bytes: After so many bytes of orders the page ends before its limit.
    """
    # The shop of a platform is that of all its orders; with it, an order is found by its id in the primary key.
    is_own = col(Order.platform) == col(OrderPlatform.platform), col(Order.shop) == col(OrderPlatform.shop)
    newest = (
        select(Order)
        .where(*is_own, *_build_conditions(filters, after))
        .order_by(col(Order.modified_at).desc(), col(Order.order_id).desc(), col(Order.shop).desc())
        .limit(limit + 1)
        .lateral()
    )
    found = aliased(Order, newest)
    statement = select(found).select_from(OrderPlatform).join(newest, true())
    if filters.project_id is not None:
        statement = statement.where(OrderPlatform.project_id == filters.project_id)
    if filters.platform is not None:
        statement = statement.where(OrderPlatform.platform == filters.platform)
    page = keyset.select_page_plus_one(statement, _get_place(found), None, limit).subquery()
    newest_first = [col(column).desc() for column in _get_place(aliased(Order, page))]
    bytes_before = func.sum(func.octet_length(page.c.raw)).over(order_by=newest_first, rows=(None, -1))
    measured = select_columns(
        page, func.coalesce(bytes_before, 0).label("bytes_before"), func.count().over().label("found")
    )
    sized = measured.subquery()
    shown = aliased(Order, sized)
    within = select(shown, sized.c.found).where(sized.c.bytes_before < max_bytes).limit(limit)
    rows = (await session.exec(within.order_by(*(col(column).desc() for column in _get_place(shown))))).all()
    return StoredOrderPage([order for order, _ in rows], bool(rows) and rows[0][1] > len(rows))


def _get_place(order: type[Order]) -> tuple[Any, ...]:
    return order.modified_at, order.order_id, order.platform, order.shop


def _build_conditions(filters: OrderFilter, after: OrderPosition | None) -> list[ColumnElement[bool]]:
    exact = {Order.shop: filters.shop, Order.order_id: filters.order_id}
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if filters.modified_after is not None:
        conditions.append(col(Order.modified_at) >= filters.modified_after)
    if filters.modified_before is not None:
        conditions.append(col(Order.modified_at) < filters.modified_before)
    if filters.field_condition is not None:
        path, value = filters.field_condition
        # PostgreSQL reads no text of JSON that holds a NUL; such an order is none with this value.
        field = cast(col(Order.raw), JSON).op("#>>")(bindparam(None, list(path), type_=ARRAY(Text)))
        conditions.append(case((func.strpos(col(Order.raw), "\\u0000") == 0, field), else_=None) == value)
    if after is not None:
        conditions.append(
            keyset.build_after_condition((Order.modified_at, Order.order_id, Order.platform, Order.shop), after)
        )
    return conditions


IDS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class OrderVersion:
    """Time of modification and version of an order."""

    modified_at: datetime
    version: int


OrderVersions: TypeAlias = Mapping[str, OrderVersion]


async def load_versions_in_window(database: Database, platform: str, window: TimeWindow) -> OrderVersions:
    """Return the versions of a platform's orders that were modified in a window."""
    statement = select(Order.order_id, Order.modified_at, Order.version).where(
        Order.platform == platform, col(Order.modified_at) >= window.start, col(Order.modified_at) < window.end
    )
    async with database.session() as session:
        return {row[0]: OrderVersion(row[1], row[2]) for row in await session.exec(statement)}


async def load_versions_of_orders(database: Database, platform: str, order_ids: Collection[str]) -> OrderVersions:
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
    WHERE platform = $1 AND revision <= $2 {behind}
    UNION ALL
    SELECT shop, order_id, modified_at, version, raw FROM order_copies
    WHERE platform = $1 AND revision <= $2 AND until_revision > $2 {behind}
) AS frozen
WHERE modified_at >= coalesce($3, '-infinity'::timestamptz) AND modified_at < coalesce($4, 'infinity'::timestamptz)
"""
_ROW: Final = """
SELECT shop, order_id, json_build_object(
    'platform', $1::text, 'shop', shop, 'order_id', order_id,
    'modified_at', to_char(modified_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'version', version,
    'order', raw::json
)::text AS row
"""
_PLACE: Final = SqlOrderAndAfterCondition(("shop", "order_id"), is_descending=False)
_COUNT: Final = f"SELECT count(*) {_SNAPSHOT.format(behind='')}"
_PAGE: Final = f"{_ROW} {_SNAPSHOT.format(behind='')} {_PLACE.order_by} LIMIT $5 OFFSET $6"
_BEHIND: Final = f"AND {_PLACE.format_after_condition('$6', '$7')}"
_PAGE_BEHIND: Final = f"{_ROW} {_SNAPSHOT.format(behind=_BEHIND)} {_PLACE.order_by} LIMIT $5"


@dataclass(frozen=True, slots=True)
class OrderSnapshot:
    """Orders of a platform as of a revision."""

    platform: str
    revision: int
    after: datetime | None = None
    before: datetime | None = None

    @property
    def sql_parameters(self) -> tuple[str, int, datetime | None, datetime | None]:
        """The first parameters of the statements."""
        return self.platform, self.revision, self.after, self.before


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """An order as of a revision."""

    shop: str
    order_id: str
    text: str
    """Its JSON, with the platform's text as received."""


async def count_snapshot_orders(database: Database, snapshot: OrderSnapshot) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval(_COUNT, *snapshot.sql_parameters))


async def list_snapshot_orders(
    database: Database, snapshot: OrderSnapshot, size: int, *, skipped: int = 0, after: tuple[str, str] | None = None
) -> list[SnapshotOrder]:
    """List the orders of a snapshot by shop and id.

    Args:
        skipped: Orders before the first one. Skipping them costs as much as reading them.
        after: Shop and id of the order before the first one, where known, instead: that costs nothing.
    """
    statement, place = (_PAGE_BEHIND, after) if after else (_PAGE, (skipped,))
    async with database.connection() as connection:
        rows = await connection.fetch(statement, *snapshot.sql_parameters, size, *place)
    return [SnapshotOrder(row["shop"], row["order_id"], row["row"]) for row in rows]
