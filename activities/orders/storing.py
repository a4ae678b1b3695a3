"""Orders in PostgreSQL: the newest copy wins, whoever writes it and in whatever order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ARRAY, BigInteger, DateTime, LargeBinary, Text, bindparam, text
from sqlmodel import select, tuple_

from domain.orders.capability import Order
from infra.database import Session
from infra.platforms import Account
from infra.tables.orders import Order as OrderRow

BATCH: Final = 2_000

# Of two copies of the same second and version the one that was asked for later is the newer.
_NEWER = (
    "({new}.modified_at, {new}.version, {new}.asked_at, {new}.digest) "
    "> ({old}.modified_at, {old}.version, {old}.asked_at, {old}.digest) AND {new}.digest <> {old}.digest"
)
_TIMES = ARRAY(DateTime(timezone=True))
_MERGE = text(
    f"""
WITH incoming AS (
    SELECT * FROM unnest(:ids, :modified, :versions, :digests, :raws, :asked)
        AS incoming (order_id, modified_at, version, digest, raw, asked_at)
), before AS (
    SELECT orders.* FROM orders JOIN incoming USING (order_id)
    WHERE orders.platform = :platform AND orders.shop = :shop
), replaced AS (
    INSERT INTO order_copies (platform, shop, order_id, revision, until_revision, modified_at, version, raw)
    SELECT before.platform, before.shop, before.order_id, before.revision, :revision,
        before.modified_at, before.version, before.raw
    FROM before JOIN incoming USING (order_id) WHERE {_NEWER.format(new="incoming", old="before")}
), written AS (
    INSERT INTO orders (platform, shop, order_id, modified_at, version, digest, raw, asked_at, revision)
    SELECT :platform, :shop, order_id, modified_at, version, digest, raw, asked_at, :revision
    FROM incoming ORDER BY order_id
    ON CONFLICT (platform, shop, order_id) DO UPDATE SET
        modified_at = excluded.modified_at, version = excluded.version, digest = excluded.digest,
        raw = excluded.raw, asked_at = excluded.asked_at, revision = excluded.revision
    WHERE {_NEWER.format(new="excluded", old="orders")}
    RETURNING order_id, modified_at
)
SELECT written.modified_at, before.modified_at AS modified_before
FROM written LEFT JOIN before USING (order_id)
"""  # noqa: S608 (only the names of two tables are put in)
).bindparams(
    bindparam("ids", type_=ARRAY(Text)),
    bindparam("modified", type_=_TIMES),
    bindparam("versions", type_=ARRAY(BigInteger)),
    bindparam("digests", type_=ARRAY(LargeBinary)),
    bindparam("raws", type_=ARRAY(Text)),
    bindparam("asked", type_=_TIMES),
    bindparam("platform", type_=Text),
    bindparam("shop", type_=Text),
    bindparam("revision", type_=BigInteger),
)


@dataclass(frozen=True, slots=True)
class Copy:
    """An order as it was told, and when it was asked for, by the platform's clock."""

    order: Order
    asked_at: datetime

    @property
    def rank(self) -> tuple[datetime, int, datetime]:
        """Of two copies the one that ranks higher is the newer."""
        return self.order.modified_at, self.order.version, self.asked_at


@dataclass(frozen=True, slots=True)
class Change:
    """An order that a commit made or replaced."""

    modified_at: datetime
    modified_before: datetime | None

    @property
    def is_new(self) -> bool:
        """Whether it was not known at all, or only as it had been earlier."""
        return self.modified_before is None or self.modified_before < self.modified_at


async def merge(session: Session, account: Account, revision: int, copies: Sequence[Copy]) -> list[Change]:
    """Write what is newer than what is there, and keep what it replaces. The platform's row must be locked."""
    changes: list[Change] = []
    for batch in _batches(copies):
        orders = [each.order for each in batch]
        rows = await session.execute(
            _MERGE,
            {
                "ids": [order.order_id for order in orders],
                "modified": [order.modified_at for order in orders],
                "versions": [order.version for order in orders],
                "digests": [digest(order) for order in orders],
                "raws": [order.raw.decode(errors="replace") for order in orders],
                "asked": [each.asked_at for each in batch],
                "platform": account.platform,
                "shop": account.shop,
                "revision": revision,
            },
        )
        changes += [Change(row.modified_at, row.modified_before) for row in rows]
    return changes


async def known(session: Session, account: Account, copies: Sequence[Copy]) -> set[str]:
    """The ids of those that we have at least as new."""
    found: set[str] = set()
    for batch in _batches(copies):
        triples = [(each.order.order_id, each.order.modified_at, each.order.version) for each in batch]
        newest = {order_id: (modified_at, version) for order_id, modified_at, version in triples}
        statement = select(OrderRow.order_id, OrderRow.modified_at, OrderRow.version).where(
            OrderRow.platform == account.platform,
            OrderRow.shop == account.shop,
            tuple_(OrderRow.order_id).in_([(order_id,) for order_id in newest]),
        )
        rows = await session.exec(statement)
        found |= {row[0] for row in rows if (row[1], row[2]) >= newest[row[0]]}
    return found


def digest(order: Order) -> bytes:
    """Tells two copies apart."""
    return hashlib.blake2b(order.raw, digest_size=16).digest()


def _batches(copies: Sequence[Copy]) -> Iterator[Sequence[Copy]]:
    for start in range(0, len(copies), BATCH):
        yield copies[start : start + BATCH]
