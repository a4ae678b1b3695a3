"""Checks that a platform has listed a whole window: of its end and of its time zone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Final

from clients.platforms import IdenticalPages, InclusiveQueryTimes, PlatformConnector, TooManyRows, WrongTimeZone
from domain.orders.capability import Capability, FilteredTimestamp, PlatformOrder
from domain.orders.windows import SECOND, TimeWindow, floor_to_second
from stores.orders.fetched_orders import FetchedOrder
from stores.orders.platforms import PlatformWithSettingsInForce

ROUND_STEP: Final = 1_000
"""Undeclared limits are round numbers: 1,000, 10,000, 25,000."""
PAGES_MANY: Final = 10
"""Pages from which on the end of a window is always checked: the check costs a tenth of it at most."""
ZONE_LOOKS: Final = 3
"""Orders requested by their own second before the filter counts as wrong: a single one may have been deleted."""
ZONE_CANDIDATES: Final = 12
"""Orders looked for at most, those included that have been modified since they were listed."""
LATE_MARGIN: Final = timedelta(minutes=1)
"""How long after its modification an order may be listed with it."""
ZONE_STEP: Final = timedelta(minutes=15)
ZONES_APART_MAX: Final = timedelta(hours=26)
CLOCK_STEP, CLOCK_STEP_MARGIN = timedelta(minutes=30), timedelta(minutes=2)
"""Clocks are put back at the end of summer time by one of these steps or more, give or take what an answer takes."""


class WindowCompleteness(Enum):
    """Whether the window was listed to its end."""

    WHOLE = auto()
    """Nothing contradicts it."""
    CUT = auto()
    """A part of the window lists orders that the whole window did not."""
    UNKNOWN = auto()
    """It ended after a round number of orders, and its sequence does not show where others would be."""


@dataclass
class ModificationSortCheck:
    """Whether the pages of one pass were sorted by modification."""

    rises: bool = True
    falls: bool = True

    def add(self, orders: Sequence[PlatformOrder]) -> None:
        """Add the orders of a page."""
        times = [order.modified_at for order in orders]
        ordered = sorted(times)
        self.rises = self.rises and times == ordered
        self.falls = self.falls and times == ordered[::-1]


async def check_window_completeness(
    connector: PlatformConnector,
    window: TimeWindow,
    copies: Mapping[str, FetchedOrder],
    largest_page: int,
    sort_check: ModificationSortCheck,
    total: int | None = None,
    *,
    is_doubted: bool = False,
) -> WindowCompleteness:
    """Check whether a platform listed a whole window, with one or two requests where that is in doubt.

    Args:
        connector: The connector to the platform.
        window: The window that was read.
        copies: The orders that were listed, by id.
        largest_page: Orders of the largest page.
        sort_check: Whether the pages were sorted.
        total: The platform's own count; ignored where it is less than what was listed.
        is_doubted: Whether something else suggests that orders were withheld.
    """
    capability = connector.capability
    rows, is_round = len(copies), bool(copies) and len(copies) % ROUND_STEP == 0
    is_counted = total is not None and total >= rows
    may_be_bound = not is_counted and _may_have_hit_limit(rows, largest_page, capability.paging.size)
    if not is_doubted and (capability.paging.rows_max is not None or not (is_round or may_be_bound)):
        return WindowCompleteness.WHOLE
    edges = list(_list_parts_beyond_last_order(capability, window, copies, sort_check))
    is_shown = bool(edges)
    for edge in edges:
        page = await connector.fetch_first_page(edge)
        if any(order.order_id not in copies for order in page.orders):
            return WindowCompleteness.CUT
        # A full page of known orders may hide others behind it: many can share one second.
        is_shown = is_shown and len(page.orders) < largest_page
    return WindowCompleteness.UNKNOWN if (is_round or is_doubted) and not is_shown else WindowCompleteness.WHOLE


def _may_have_hit_limit(rows: int, largest_page: int, page_size: int) -> bool:
    """Return whether the last page was full, as far as the number of orders shows it, or there were many pages."""
    if not rows or (rows == largest_page < page_size):
        return False
    return rows % largest_page == 0 or rows >= PAGES_MANY * largest_page


def _list_parts_beyond_last_order(
    capability: Capability,
    window: TimeWindow,
    copies: Mapping[str, FetchedOrder],
    sort_check: ModificationSortCheck,
) -> Iterator[TimeWindow]:
    """List the parts of the window beyond the last order, in the direction in which it is sorted."""
    if capability.query.field is FilteredTimestamp.CREATED:
        return
    times = [copy.order.modified_at for copy in copies.values() if window.contains(copy.order.modified_at)]
    if not times:
        return
    least = max(SECOND, timedelta(seconds=capability.query.window_min_seconds))
    if (
        sort_check.rises
        and (start := min(floor_to_second(max(times)), floor_to_second(window.end - least))) > window.start
    ):
        yield TimeWindow(start=start, end=window.end)
    if (
        sort_check.falls
        and (end := max(floor_to_second(min(times)) + SECOND, _round_up_to_second(window.start + least))) < window.end
    ):
        yield TimeWindow(start=window.start, end=end)


def _round_up_to_second(moment: datetime) -> datetime:
    whole = floor_to_second(moment)
    return whole if whole == moment else whole + SECOND


async def confirm_zone_by_query_at_modification_second(
    connector: PlatformConnector, window: TimeWindow, copies: Mapping[str, FetchedOrder]
) -> bool:
    """Request an order by the very second of its modification.

    Returns:
        Whether it was found; False where no order can be requested, or all have been modified since.

    Raises:
        WrongTimeZone: No such order is found: the filter reads times as those of another zone.
    """
    capability = connector.capability
    if capability.query.field is FilteredTimestamp.CREATED:
        return False
    bounds, now = connector.compute_query_bounds(window), datetime.now(UTC) + connector.clock_skew
    orders = [copy.order for copy in copies.values()]
    # An order without a time counts as old as the window; one from the future cannot be requested.
    dated = [order for order in orders if bounds.first < order.modified_at <= now]
    if not dated and _are_orders_from_another_zone(
        shifted := [o for o in orders if o.modified_at != bounds.first], bounds
    ):
        dated = [order for order in shifted if order.modified_at <= now]
        if not dated:
            raise _build_zone_failure(shifted[0])
    least = timedelta(seconds=max(1, int(capability.query.window_min_seconds)))
    missing: list[PlatformOrder] = []
    for order in dated[:ZONE_CANDIDATES]:
        start = floor_to_second(order.modified_at)
        try:
            if order.order_id in await _list_orders_of_window_by_id(
                connector, TimeWindow(start=start, end=start + least)
            ):
                return True
        except TooManyRows:
            return True
        if not await _is_listed_as_modified_since_request(connector, copies[order.order_id]):
            missing.append(order)
        if len(missing) == ZONE_LOOKS:
            break
    if missing:
        raise _build_zone_failure(missing[0])
    return False


async def _is_listed_as_modified_since_request(connector: PlatformConnector, copy: FetchedOrder) -> bool:
    """Return whether the platform lists an order as modified since it was requested; False where it lists too many."""
    end = floor_to_second(datetime.now(UTC) + connector.clock_skew) + SECOND
    start = floor_to_second(copy.asked_at - LATE_MARGIN)
    if longest := connector.capability.query.window_max_seconds:
        start = max(start, end - timedelta(seconds=longest))
    try:
        now = (await _list_orders_of_window_by_id(connector, TimeWindow(start=start, end=end))).get(copy.order.order_id)
    except TooManyRows:
        return False
    return now is not None and now.modified_at > copy.order.modified_at


async def _list_orders_of_window_by_id(connector: PlatformConnector, window: TimeWindow) -> dict[str, PlatformOrder]:
    found: dict[str, PlatformOrder] = {}
    with suppress(IdenticalPages):
        async for page in connector.iterate_pages(window, await connector.fetch_row_count(window)):
            found |= {order.order_id: order for order in page.orders}
    return found


def _build_zone_failure(order: PlatformOrder) -> WrongTimeZone:
    return WrongTimeZone(
        f"Order {order.order_id} is told as modified at {order.modified_at.isoformat()}, and is not found when "
        "that second is asked for: the platform's filter goes by other times than its orders tell.",
        "Correct `zone_minutes` of `query.time_format` or `rows.time_format` in its record, or the platform's own "
        "setting; or `paging.first`, if its pages begin with another number. Nothing is complete before that.",
        may_pass=True,
    )


def _are_orders_from_another_zone(orders: list[PlatformOrder], bounds: InclusiveQueryTimes) -> bool:
    """Return whether all orders lie outside of the window, by a distance that two time zones can have."""
    if len(orders) < ZONE_LOOKS:
        return False
    times = [order.modified_at for order in orders]
    nearest, farthest = max(times) - bounds.last, min(times) - bounds.first
    shift = -(-nearest // ZONE_STEP) * ZONE_STEP
    return timedelta() != shift <= farthest and abs(shift) <= ZONES_APART_MAX


def require_clock_not_put_back(state: PlatformWithSettingsInForce, platform_now: datetime) -> None:
    """Require that a clock that tells local times by a fixed offset is not put back, as at the end of summer time.

    That of a built-in kind has no record that could be changed, and is of a zone that puts no clocks back.

    Raises:
        WrongTimeZone: It tells hours again that were claimed already: orders of the second time would be left out.
    """
    clock, skew_seconds = state.capability.clock, state.row.skew_seconds
    is_checked = (
        state.row.capability is not None and clock.value is not None and clock.time_format.is_local_by_fixed_offset
    )
    if skew_seconds is None or not is_checked:
        return
    put_back = timedelta(seconds=skew_seconds) - (platform_now - datetime.now(UTC))
    steps = round(put_back / CLOCK_STEP)
    if steps > 0 and abs(put_back - steps * CLOCK_STEP) < CLOCK_STEP_MARGIN:
        raise WrongTimeZone(
            f"The clock of the platform was put back by {steps * CLOCK_STEP}, to {platform_now.isoformat()}: it tells "
            "times again whose orders were read already.",
            "Name the zone of its times in its record (`zone` in place of `zone_minutes`), then backfill the time that "
            "was told twice. Where it was only set right, send its record with any change.",
        )
