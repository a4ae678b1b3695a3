"""What all routes of orders share: the route table, the path of a platform, and the cache of snapshots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from aiohttp import web
from pydantic import Field

from api.http.models import Request
from api.http.routes import Routes
from api.pauses import RESUME_HOOKS
from domain.faults import Invalid
from domain.orders import names
from infra.database import Database
from services.services import Services
from stores.orders import order_copies
from stores.orders.order_copies import OrderSnapshot
from workflows.orders import handle

REMEMBERED_MAX: Final = 10_000
ORDERS_READ_AT_ONCE: Final = 500
ENVELOPE_BYTES: Final = 40
"""Most bytes of a page of an export without its orders, and the commas between them."""
OrderKey = tuple[str, str]


class SnapshotTotalAndPageEndCache:
    """Remembers totals and page ends of snapshots in this process, so that following pages are found by key.

    Args:
        page_max_bytes: Of a page of an export; its source may send no more to a download.
    """

    def __init__(self, database: Database, page_max_bytes: int) -> None:
        self._database = database
        self._page_max_bytes = page_max_bytes
        self._totals: OrderedDict[OrderSnapshot, int] = OrderedDict()
        self._ends: OrderedDict[tuple[OrderSnapshot, int], OrderKey] = OrderedDict()

    async def count_orders(self, snapshot: OrderSnapshot) -> int:
        """Return the number of orders."""
        if snapshot not in self._totals:
            _add_evicting_oldest(
                self._totals, snapshot, await order_copies.count_snapshot_orders(self._database, snapshot)
            )
        return self._totals[snapshot]

    async def read_page(self, snapshot: OrderSnapshot, start: int, size: int) -> Sequence[str]:
        """Return a page of orders as JSON texts, beginning with the given position.

        Raises:
            Invalid: They are more than a download takes on a page; what is read until then is bounded.
        """
        texts, body_bytes = list[str](), ENVELOPE_BYTES
        last = self._ends.get((snapshot, start))
        while len(texts) < size:
            most = min(ORDERS_READ_AT_ONCE, size - len(texts))
            orders = await order_copies.list_snapshot_orders(self._database, snapshot, most, skipped=start, after=last)
            texts += [order.text for order in orders]
            body_bytes += sum(len(order.text.encode()) + 1 for order in orders)
            if body_bytes > self._page_max_bytes:
                raise Invalid(
                    "page_too_large",
                    f"A page of {size:,} orders has more than {self._page_max_bytes:,} bytes here.",
                    "Ask for a smaller page_size.",
                    field="page_size",
                )
            if orders:
                last = orders[-1].shop, orders[-1].order_id
            if len(orders) < most:
                break
        if last and texts:
            _add_evicting_oldest(self._ends, (snapshot, start + len(texts)), last)
        return texts


SNAPSHOTS = web.AppKey("orders_frozen", SnapshotTotalAndPageEndCache)


def _add_evicting_oldest(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    if len(known) > REMEMBERED_MAX:
        known.popitem(last=False)


def _attach_cache_and_resume_hook(app: web.Application, services: Services) -> None:
    app[SNAPSHOTS] = SnapshotTotalAndPageEndCache(services.database, services.settings.downloads.page_max_bytes)
    app[RESUME_HOOKS][names.SYSTEM] = partial(
        handle.trigger_cycles_of_unpaused_platforms, services.engine, services.database
    )


routes = Routes(
    "orders",
    "Orders are fetched from every platform in slices of time, none lost.",
    attach=_attach_cache_and_resume_hook,
)


class PlatformPath(Request):
    """Path of a platform: the name that you gave it."""

    platform: str = Field(pattern=names.PLATFORM_PATTERN)
