"""Orders as they were at a mark: what was found once stays true, so pages and totals are remembered.

A download asks for page after page. Skipping to a page costs as much as reading all before it; going on from the last
order of the page before costs nothing, and each process remembers where its pages ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from infra.database import Database
from stores.orders import search
from stores.orders.search import OrderSnapshot

REMEMBERED_MAX: Final = 10_000
Key = tuple[str, str]


class Frozen:
    """What this process remembers of orders at marks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._totals: OrderedDict[OrderSnapshot, int] = OrderedDict()
        self._ends: OrderedDict[tuple[OrderSnapshot, int], Key] = OrderedDict()

    async def total(self, excerpt: OrderSnapshot) -> int:
        """How many orders there are."""
        if excerpt not in self._totals:
            _remember(self._totals, excerpt, await search.count_snapshot(self._database, excerpt))
        return self._totals[excerpt]

    async def page(self, excerpt: OrderSnapshot, start: int, size: int) -> Sequence[str]:
        """Orders as JSON texts, from the one in this place on."""
        last = self._ends.get((excerpt, start))
        orders = await search.list_snapshot(self._database, excerpt, size, skipped=start, behind=last)
        if orders:
            _remember(self._ends, (excerpt, start + len(orders)), (orders[-1].shop, orders[-1].order_id))
        return [order.text for order in orders]


FROZEN = web.AppKey("orders_frozen", Frozen)


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    if len(known) > REMEMBERED_MAX:
        known.popitem(last=False)
