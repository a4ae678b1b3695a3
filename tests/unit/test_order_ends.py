"""Ends of windows: a platform that stops at a bound of its own is noticed, though its record says nothing of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.orders.reading import WindowReader, WindowTooLarge
from activities.orders.window_checks import ModificationSortCheck, WindowCompleteness, check_window_completeness
from clients.platforms import OrderPage, TooManyRows
from domain.orders.capability import Capability, FilteredTimestamp
from domain.orders.windows import SECOND, TimeWindow
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN
from stores.orders.fetched_orders import FetchedOrder
from tests.support.platforms import KINDS, RunningConnector, running_connector

BOUND = 400
SIZE = 50
MANY: dict[str, Any] = {"orders": 3_000, "span_seconds": 7_200}
SORTED = {"falls": "-updated_at", "rises": "updated_at"}


def record(sort: str, size: int = SIZE, **changes: Any) -> Capability:
    """A record of numbered pages that says nothing of where they end."""
    query = PLAIN.query.model_copy(update={"parameters": {"sort": SORTED[sort]}})
    paging = PLAIN.paging.model_copy(update={"size": size})
    return PLAIN.model_copy(update={"query": query, "paging": paging, "total": None, **changes})


@asynccontextmanager
async def stopping(capability: Capability, **scenario: Any) -> AsyncIterator[tuple[RunningConnector, TimeWindow]]:
    """A platform that lists at most 400 orders of a query, and a window with more of them."""
    async with running_connector(capability, **{**MANY, "rows_max": BOUND, **scenario}) as here:
        window = here.window(3_600)
        assert len(here.truth(window)) > 2 * BOUND
        yield here, window


async def read_in_parts(here: RunningConnector, window: TimeWindow) -> set[str]:
    """What a slice and its halves list, as they are split."""
    try:
        return set((await WindowReader(here.connector, window, 10_000).read_passes_until_confirmed()).copies)
    except WindowTooLarge:
        first, second = window.split_in_halves() or pytest.fail("it is too short to be split")
    return await read_in_parts(here, first) | await read_in_parts(here, second)


@pytest.mark.parametrize("sort", SORTED)
@pytest.mark.parametrize("size", [SIZE, 30])
async def test_a_window_that_ends_early_is_split_until_all_is_told(sort: str, size: int) -> None:
    """Whichever end of the window is kept back, and whether or not the last page is full."""
    async with stopping(record(sort, size)) as (here, window):
        told = await read_in_parts(here, window)
        assert told >= here.truth(window).keys()


@pytest.mark.parametrize("sort", SORTED)
async def test_one_that_cannot_be_split_fails_and_says_what_helps(sort: str) -> None:
    """Nothing of it counts as complete. A shorter window is not asked for than the platform takes."""
    known = record(sort)
    query = known.query.model_copy(update={"window_min_seconds": 2_000})
    async with stopping(known.model_copy(update={"query": query})) as (here, window):
        with pytest.raises(TooManyRows, match=r"ended after 400 orders of the window .*`paging\.rows_max`"):
            await WindowReader(here.connector, window, None).read_passes_until_confirmed()


@pytest.mark.parametrize("sort", SORTED)
@pytest.mark.parametrize(
    "read",
    [WindowReader.read_passes_until_confirmed, WindowReader.read_in_one_pass_and_check_end],
    ids=["redo", "sweep"],
)
async def test_an_order_that_shows_up_during_the_check_of_the_end_is_no_bound(
    sort: str, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window cannot be split, so it is read once more: then the order is listed like all others."""
    known = record(sort)
    query = known.query.model_copy(update={"window_min_seconds": 2_000})
    async with running_connector(known.model_copy(update={"query": query}), orders=200, span_seconds=3_300) as here:
        window = here.window(3_600, until_seconds_ago=-300)
        ask, market, added = here.connector.fetch_first_page, here.platform.market, list[int]()

        async def ask_when_another_shows_up(edge: TimeWindow) -> OrderPage:
            if not added:
                first_told = edge.start if sort == "rises" else edge.end - SECOND
                added.append(market.create(int(first_told.timestamp()) * MICRO))
            return await ask(edge)

        monkeypatch.setattr(here.connector, "fetch_first_page", ask_when_another_shows_up)
        contents = await read(WindowReader(here.connector, window, None))
        assert (len(added), contents.passes) == (1, 2)
        assert contents.copies.keys() == here.truth(window).keys()
        assert len(contents.copies) == 201


@pytest.mark.parametrize("sort", SORTED)
@pytest.mark.parametrize(
    "read",
    [WindowReader.read_passes_until_confirmed, WindowReader.read_in_one_pass_and_check_end],
    ids=["redo", "sweep"],
)
async def test_a_slice_that_is_not_split_any_more_is_read_in_parts(sort: str, read: Any) -> None:
    """It was complete before, and all that it holds by now is listed."""
    async with stopping(record(sort)) as (here, window):
        contents = await read(WindowReader(here.connector, window, None))
        assert contents.copies.keys() >= here.truth(window).keys()


@pytest.mark.parametrize(("orders", "more"), [(199, 0), (200, 1), (499, 0), (510, 1)])
async def test_only_where_the_end_is_in_doubt_one_more_request_is_made(orders: int, more: int) -> None:
    """The last page was full, or there were ten of them."""
    async with running_connector(record("falls"), orders=orders, span_seconds=3_600) as here:
        contents = await WindowReader(
            here.connector, here.window(3_900, until_seconds_ago=-300), 10_000
        ).read_passes_until_confirmed()

        assert len(contents.copies) == orders
        assert here.platform.calls["told"] == len(contents.pages) + more


async def test_what_the_record_says_is_believed() -> None:
    """A total, or after how many orders the platform stops, makes another request needless."""
    bounded = PLAIN.paging.model_copy(update={"size": SIZE, "rows_max": 10_000})
    for known in (record("falls", total=PLAIN.total), record("falls", paging=bounded)):
        async with running_connector(known, orders=200, span_seconds=3_600) as here:
            window = here.window(3_900, until_seconds_ago=-300)
            copies = (await WindowReader(here.connector, window, None).read_passes_until_confirmed()).copies
            asked = here.platform.calls["told"]
            assert (
                await check_window_completeness(
                    here.connector, window, copies, SIZE, ModificationSortCheck(), len(copies)
                )
                is WindowCompleteness.WHOLE
            )
            assert here.platform.calls["told"] == asked


@pytest.mark.parametrize(
    ("total", "end"),
    [(None, WindowCompleteness.CUT), (SIZE, WindowCompleteness.CUT), (BOUND, WindowCompleteness.WHOLE)],
    ids=["none", "lie", "right"],
)
async def test_a_total_of_fewer_orders_than_were_told_is_not_believed(
    total: int | None, end: WindowCompleteness
) -> None:
    """As where it is that of a page."""
    async with stopping(record("falls")) as (here, window):
        pages = await here.read(window)
        copies = {order.order_id: FetchedOrder(order, page.asked_at) for page in pages for order in page.orders}
        assert len(copies) == BOUND
        assert (
            await check_window_completeness(
                here.connector, window, copies, SIZE, ModificationSortCheck(rises=False), total
            )
            is end
        )


@pytest.mark.parametrize(
    ("orders", "total", "field", "sequence", "end"),
    [
        (
            1_000,
            None,
            FilteredTimestamp.MODIFIED,
            ModificationSortCheck(rises=False, falls=False),
            WindowCompleteness.UNKNOWN,
        ),
        (1_000, None, FilteredTimestamp.CREATED, ModificationSortCheck(), WindowCompleteness.UNKNOWN),
        (1_000, PLAIN.total, FilteredTimestamp.CREATED, ModificationSortCheck(), WindowCompleteness.UNKNOWN),
        (
            950,
            None,
            FilteredTimestamp.MODIFIED,
            ModificationSortCheck(rises=False, falls=False),
            WindowCompleteness.WHOLE,
        ),
        (1_000, None, FilteredTimestamp.MODIFIED, ModificationSortCheck(rises=False), WindowCompleteness.WHOLE),
        (
            1_000,
            PLAIN.total,
            FilteredTimestamp.MODIFIED,
            ModificationSortCheck(rises=False),
            WindowCompleteness.WHOLE,
        ),
    ],
)
async def test_a_round_number_is_doubted_where_nothing_shows_the_end(
    orders: int, total: Any, field: FilteredTimestamp, sequence: ModificationSortCheck, end: WindowCompleteness
) -> None:
    """A platform that sorts by something else than is asked for may keep back any of its orders."""
    async with running_connector(record("falls", total=total), orders=orders, span_seconds=3_600) as here:
        window = here.window(3_900, until_seconds_ago=-300)
        copies = (await WindowReader(here.connector, window, None).read_passes_until_confirmed()).copies
        query = here.connector.capability.query.model_copy(update={"field": field})
        here.connector.capability = here.connector.capability.model_copy(update={"query": query})

        assert len(copies) == orders
        assert await check_window_completeness(here.connector, window, copies, SIZE, sequence) is end


async def test_a_doubtful_end_is_split_or_noted() -> None:
    """A smaller window holds no such number of orders; where there is none, a warning is what is left."""
    created = record("falls", query=PLAIN.query.model_copy(update={"field": FilteredTimestamp.CREATED}))
    async with running_connector(created, orders=1_000, span_seconds=3_600) as here:
        window = here.window(3_900, until_seconds_ago=-300)
        with pytest.raises(WindowTooLarge):
            await WindowReader(here.connector, window, 10_000).read_passes_until_confirmed()
        assert (await WindowReader(here.connector, window, None).read_passes_until_confirmed()).may_be_cut


@pytest.mark.parametrize("kind", KINDS)
async def test_a_first_page_is_asked_for_by_itself(kind: Any) -> None:
    """By one request, in the sequence of the platform."""
    async with running_connector(kind=kind, orders=600, span_seconds=3_600) as here:
        window = here.window(1_200)
        await here.connector.fetch_platform_time()  # some sign with it
        before = here.platform.calls["told"]
        page = await here.connector.fetch_first_page(window)
        assert here.platform.calls["told"] == before + 1
        assert {order.order_id for order in page.orders} <= {each.order_id for each in await _list_orders(here, window)}
        assert page.orders


async def _list_orders(here: RunningConnector, window: TimeWindow) -> list[Any]:
    return [order for page in await here.read(window) for order in page.orders]


@pytest.mark.parametrize(("size", "end"), [(10, WindowCompleteness.UNKNOWN), (50, WindowCompleteness.WHOLE)])
async def test_a_full_page_at_the_end_shows_nothing(size: int, end: WindowCompleteness) -> None:
    """Behind orders of one second others may be hidden, which a page that is not full would have listed."""
    async with running_connector(record("falls", size), orders=30, span_seconds=1) as here:
        window = here.window(3_900, until_seconds_ago=-300)
        copies = (await WindowReader(here.connector, window, None).read_passes_until_confirmed()).copies
        assert len(copies) == 30
        sequence = ModificationSortCheck(rises=False)
        assert await check_window_completeness(here.connector, window, copies, size, sequence, is_doubted=True) is end
