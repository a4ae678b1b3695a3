"""Ends: whether a platform has told all of a window, or has stopped at a bound of its own without a word.

Many platforms tell no more than so many rows of a query, and answer with an empty page behind them. Where they sort by
the time that is asked for, the orders that they keep back lie together at one edge of the window. So the edge is asked
for by itself: one request, and only where the end may be such a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from clients.platforms import Connector
from domain.orders.capability import Capability, PlatformOrder, QueryField
from domain.orders.windows import SECOND, TimeWindow, floor_to_second
from stores.orders.order_copies import FetchedOrder

ROUND_STEP: Final = 1_000
"""Bounds are round numbers: 1,000, 10,000, 25,000."""
PAGES_MANY: Final = 10
"""A window of so many pages is asked once more, wherever it ends: that costs a tenth of it at most."""


class WindowEnd(Enum):
    """What is known of the end of a window."""

    WHOLE = auto()
    """Nothing speaks against it."""
    CUT = auto()
    """Orders were told of a part of the window that had not been told of all of it."""
    UNKNOWN = auto()
    """It ended after a round number of orders, and its sequence does not say where others would be."""


@dataclass
class Sequenced:
    """In which sequence the pages of one pass told their orders."""

    rises: bool = True
    falls: bool = True

    def add(self, orders: Sequence[PlatformOrder]) -> None:
        """Take in a page."""
        times = [order.modified_at for order in orders]
        ordered = sorted(times)
        self.rises = self.rises and times == ordered
        self.falls = self.falls and times == ordered[::-1]


async def check_end(
    connector: Connector,
    window: TimeWindow,
    copies: Mapping[str, FetchedOrder],
    largest_page: int,
    sequence: Sequenced,
    total: int | None = None,
    *,
    is_doubted: bool = False,
) -> WindowEnd:
    """Say whether what a platform told of a window is all of it, with a request or two where that is in doubt.

    Args:
        connector: Asks the platform.
        window: What was asked for.
        copies: What was told of it.
        largest_page: How many orders the largest of its pages had.
        sequence: In which sequence they were told.
        total: How many there are by the platform's own word; of no worth where it has told more.
        is_doubted: Whether it looks, for another reason, as if more were kept back.
    """
    capability = connector.capability
    rows, is_round = len(copies), bool(copies) and len(copies) % ROUND_STEP == 0
    is_counted = total is not None and total >= rows
    may_be_bound = not is_counted and _may_be_bound(rows, largest_page, capability.paging.size)
    if not is_doubted and (capability.paging.rows_max is not None or not (is_round or may_be_bound)):
        return WindowEnd.WHOLE
    edges = list(_list_edges(capability, window, copies, sequence))
    is_shown = bool(edges)
    for edge in edges:
        page = await connector.first_page(edge)
        if any(order.order_id not in copies for order in page.orders):
            return WindowEnd.CUT
        # A full page of orders that were told may hide others behind it: many are of one second.
        is_shown = is_shown and len(page.orders) < largest_page
    return WindowEnd.UNKNOWN if (is_round or is_doubted) and not is_shown else WindowEnd.WHOLE


def _may_be_bound(rows: int, largest_page: int, size: int) -> bool:
    """Whether the last page was full, as far as the number of orders shows it, or there were many."""
    if not rows or (rows == largest_page < size):
        return False
    return rows % largest_page == 0 or rows >= PAGES_MANY * largest_page


def _list_edges(
    capability: Capability, window: TimeWindow, copies: Mapping[str, FetchedOrder], sequence: Sequenced
) -> Iterator[TimeWindow]:
    """List the parts of a window behind the last order that was told, as it is sorted."""
    if capability.query.field is QueryField.CREATED:
        return
    times = [copy.order.modified_at for copy in copies.values() if window.holds(copy.order.modified_at)]
    if not times:
        return
    least = max(SECOND, timedelta(seconds=capability.query.window_min_seconds))
    if (
        sequence.rises
        and (start := min(floor_to_second(max(times)), floor_to_second(window.end - least))) > window.start
    ):
        yield TimeWindow(start=start, end=window.end)
    if sequence.falls and (end := max(floor_to_second(min(times)) + SECOND, _ceil(window.start + least))) < window.end:
        yield TimeWindow(start=window.start, end=end)


def _ceil(moment: datetime) -> datetime:
    whole = floor_to_second(moment)
    return whole if whole == moment else whole + SECOND
