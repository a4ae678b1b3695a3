"""Orders as they were at a mark: what was found once stays true, so pages and totals are remembered.

A download asks for page after page. Skipping to a page costs as much as reading all before it; going on from the last
order of the page before costs nothing, and each process remembers where its pages ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from aiohttp import web
from sqlalchemy import BigInteger, Text, bindparam, text

from infra.database import Database

REMEMBERED_MAX: Final = 10_000
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
_END: Final = "ORDER BY shop, order_id LIMIT :size OFFSET :skipped"
_BOUND: Final = (bindparam("revision", type_=BigInteger), bindparam("platform", type_=Text))
_COUNT: Final = text(f"SELECT count(*) {_FROZEN.format(behind='')}").bindparams(*_BOUND)
_PAGE: Final = text(_ROW + _FROZEN.format(behind="") + _END).bindparams(*_BOUND)
_PAGE_BEHIND: Final = text(
    _ROW + _FROZEN.format(behind="AND (shop, order_id) > (:last_shop, :last_order_id)") + _END
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


Key = tuple[str, str]


class Frozen:
    """What this process remembers of orders at marks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._totals: OrderedDict[Excerpt, int] = OrderedDict()
        self._ends: OrderedDict[tuple[Excerpt, int], Key] = OrderedDict()

    async def total(self, excerpt: Excerpt) -> int:
        """How many orders there are."""
        if excerpt not in self._totals:
            async with self._database.session() as session:
                counted = (await session.execute(_COUNT, excerpt.parameters)).scalar_one()
            _remember(self._totals, excerpt, int(counted))
        return self._totals[excerpt]

    async def page(self, excerpt: Excerpt, start: int, size: int) -> Sequence[str]:
        """Orders as JSON texts, from the one in this place on."""
        last = self._ends.get((excerpt, start))
        parameters = {**excerpt.parameters, "size": size, "skipped": 0 if last else start}
        if last:
            parameters |= {"last_shop": last[0], "last_order_id": last[1]}
        async with self._database.session() as session:
            rows = (await session.execute(_PAGE_BEHIND if last else _PAGE, parameters)).all()
        if rows:
            _remember(self._ends, (excerpt, start + len(rows)), (rows[-1].shop, rows[-1].order_id))
        return [row.row for row in rows]


FROZEN = web.AppKey("orders_frozen", Frozen)


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    if len(known) > REMEMBERED_MAX:
        known.popitem(last=False)
