"""Orders as they were at a commit: the newest copies, and those that were replaced since."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Text, bindparam, text

from infra.database import Database
from stores.shared.keyset import SqlKeyset

_FROZEN: Final = """
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
_END: Final = f"{_PLACE.order_by} LIMIT :size OFFSET :skipped"
_BOUND: Final = (bindparam("revision", type_=BigInteger), bindparam("platform", type_=Text))
_COUNT: Final = text(f"SELECT count(*) {_FROZEN.format(behind='')}").bindparams(*_BOUND)
_PAGE: Final = text(_ROW + _FROZEN.format(behind="") + _END).bindparams(*_BOUND)
_PAGE_BEHIND: Final = text(
    _ROW + _FROZEN.format(behind=f"AND {_PLACE.format_behind(':last_shop', ':last_order_id')}") + _END
).bindparams(*_BOUND)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Which orders, as they were at which commit."""

    platform: str
    revision: int
    after: datetime | None = None
    before: datetime | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """As the statements take them."""
        return {"platform": self.platform, "revision": self.revision, "after": self.after, "before": self.before}


@dataclass(frozen=True, slots=True)
class FrozenOrder:
    """An order as it was."""

    shop: str
    order_id: str
    text: str
    """Its JSON, with what the platform wrote as it wrote it."""


async def count(database: Database, excerpt: Excerpt) -> int:
    """How many orders there are."""
    async with database.session() as session:
        return int((await session.execute(_COUNT, excerpt.parameters)).scalar_one())


async def list_orders(
    database: Database, excerpt: Excerpt, size: int, *, skipped: int = 0, behind: tuple[str, str] | None = None
) -> list[FrozenOrder]:
    """Orders by shop and id.

    Args:
        skipped: How many lie before the first. To skip them costs as much as to read them.
        behind: The shop and id of the order before the first, where they are known, instead: that costs nothing.
    """
    parameters: dict[str, Any] = {**excerpt.parameters, "size": size, "skipped": 0 if behind else skipped}
    if behind:
        parameters |= {"last_shop": behind[0], "last_order_id": behind[1]}
    async with database.session() as session:
        rows = (await session.execute(_PAGE_BEHIND if behind else _PAGE, parameters)).all()
    return [FrozenOrder(row.shop, row.order_id, row.row) for row in rows]
