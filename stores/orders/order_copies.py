"""Orders in PostgreSQL: the newest copy wins, whatever the sequence of writes."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import ARRAY, BigInteger, DateTime, LargeBinary, Text, bindparam, delete, text
from sqlmodel import col, func, select, tuple_

from domain.orders.access import Account
from domain.orders.capability import PlatformOrder
from infra.database import Database, Session, pack_column_count, pack_microseconds, pack_table, pack_text
from stores.tables.orders import Order as OrderRow
from stores.tables.orders import OrderCopy

BATCH: Final = 2_000
DIGEST_BYTES: Final = 16

COLUMNS: Final = (*("platform", "shop", "order_id", "modified_at", "version", "digest", "raw", "asked_at", "revision"),)
_STATE: Final = struct.Struct(f">iqiqi{DIGEST_BYTES}si")
_TAIL: Final = struct.Struct(">iqiq")
_TIMES = ARRAY(DateTime(timezone=True))
_ACCOUNT = (bindparam("platform", type_=Text), bindparam("shop", type_=Text))
# Order by order, by the primary key. If the platform were visible to the planner, it would consider one that was set up
# after the last ANALYZE empty, and read all of its orders each time.
_STORED = (
    "SELECT * FROM orders WHERE platform = (SELECT :platform) AND shop = (SELECT :shop) "
    "AND orders.order_id = wanted.order_id OFFSET 0"
)
_KNOWN = text(
    "SELECT ours.order_id, modified_at, version, asked_at, digest "  # noqa: S608 (all of it is written here)
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


class FetchedOrder(msgspec.Struct, gc=False):
    """An order as received, and when it was requested, by the platform's clock."""

    order: PlatformOrder
    asked_at: datetime
    digest: bytes = b""
    """Differs between copies of different content."""

    def __post_init__(self) -> None:
        """Compute the digest once."""
        self.digest = hashlib.blake2b(self.order.raw, digest_size=DIGEST_BYTES).digest()

    @property
    def rank(self) -> tuple[datetime, int, datetime]:
        """Key of the comparison of two copies: the higher rank is newer."""
        return self.order.modified_at, self.order.version, self.asked_at

    def replaces(self, stored: StoredVersion) -> bool:
        """Return whether it is newer: of two copies of the same second and version, the one requested later."""
        return self.digest != stored.digest and (*self.rank, self.digest) > (*stored.rank, stored.digest)


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """Rank and digest of a stored order."""

    rank: tuple[datetime, int, datetime]
    digest: bytes


class OrderChange(msgspec.Struct, frozen=True, gc=False):
    """An order that a commit inserted or replaced."""

    modified_at: datetime
    modified_before: datetime | None

    @property
    def is_new(self) -> bool:
        """Whether the order was unknown, or only stored with an earlier time."""
        return self.modified_before is None or self.modified_before < self.modified_at


async def merge(session: Session, account: Account, revision: int, copies: Sequence[FetchedOrder]) -> list[OrderChange]:
    """Write copies that are newer than the stored ones, and keep what they replace. The platform's row must be locked.

    The lock excludes other writers of the account's orders, so reading first is safe: new orders are then written by
    COPY, which costs PostgreSQL a tenth of an insert that has to expect a conflict.
    """
    found: dict[str, StoredVersion] = {}
    for batch in _split_batches(copies):
        found |= await _load_versions(session, account, batch)
    new = [each for each in copies if each.order.order_id not in found]
    newer = [each for each in copies if (old := found.get(each.order.order_id)) and each.replaces(old)]
    if new:
        await session.copy(OrderRow.__tablename__, COLUMNS, await asyncio.to_thread(pack_rows, account, revision, new))
    for batch in _split_batches(newer):
        await _replace(session, account, revision, batch)
    changes = [OrderChange(each.order.modified_at, None) for each in new]
    return changes + [OrderChange(each.order.modified_at, found[each.order.order_id].rank[0]) for each in newer]


async def list_known(database: Database, account: Account, copies: Sequence[FetchedOrder]) -> set[str]:
    """Return the ids of orders that are stored at least as new."""
    ids: set[str] = set()
    async with database.session() as session:
        for batch in _split_batches(copies):
            found = await _load_versions(session, account, batch)
            newest = {each.order.order_id: (each.order.modified_at, each.order.version) for each in batch}
            ids |= {order_id for order_id, stored in found.items() if stored.rank[:2] >= newest[order_id]}
    return ids


async def purge(database: Database, kept: timedelta, limit: int) -> int:
    """Delete at most *limit* copies that were replaced longer ago; return how many."""
    name = (OrderCopy.platform, OrderCopy.shop, OrderCopy.order_id, OrderCopy.revision)
    past = select(*name).where(col(OrderCopy.replaced_at) < func.now() - kept).limit(limit)
    async with database.session() as session:
        return (await session.exec(delete(OrderCopy).where(tuple_(*name).in_(past)))).rowcount


async def _load_versions(session: Session, account: Account, batch: Sequence[FetchedOrder]) -> dict[str, StoredVersion]:
    ids = [each.order.order_id for each in batch]
    rows = await session.execute(_KNOWN, {"platform": account.platform, "shop": account.shop, "ids": ids})
    return {row.order_id: StoredVersion((row.modified_at, row.version, row.asked_at), row.digest) for row in rows}


async def _replace(session: Session, account: Account, revision: int, batch: Sequence[FetchedOrder]) -> None:
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


def pack_rows(account: Account, revision: int, copies: Sequence[FetchedOrder]) -> bytes:
    """Encode new orders for COPY, in the order of their key."""
    head = pack_column_count(len(COLUMNS)) + pack_text(account.platform.encode()) + pack_text(account.shop.encode())
    rows = []
    for copy in sorted(copies, key=_get_order_id):
        order, raw = copy.order, copy.order.raw
        state = _STATE.pack(
            *(8, pack_microseconds(order.modified_at)),
            *(8, order.version),
            *(DIGEST_BYTES, copy.digest),
            len(raw),
        )
        tail = _TAIL.pack(8, pack_microseconds(copy.asked_at), 8, revision)
        rows.append(b"".join((head, pack_text(order.order_id.encode()), state, raw, tail)))
    return pack_table(rows)


def _get_order_id(copy: FetchedOrder) -> str:
    return copy.order.order_id


def _split_batches(copies: Sequence[FetchedOrder]) -> Iterator[Sequence[FetchedOrder]]:
    for start in range(0, len(copies), BATCH):
        yield copies[start : start + BATCH]
