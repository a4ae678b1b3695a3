"""Reading a window until it is confirmed: what has moved is read again, and no more than that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.orders.reading import NewestOrdersOfWindow, WindowReader, WindowTooLarge
from activities.orders.window_checks import ZONE_LOOKS
from clients.platforms import (
    CredentialsRefused,
    InconsistentAnswers,
    OrderPage,
    PlatformConnector,
    PlatformRefused,
    TooManyRows,
    WrongTimeZone,
)
from domain.orders.capability import FilteredTimestamp, PlatformOrder, TotalCall
from domain.orders.confirmation import PASSES_MAX
from domain.orders.windows import TimeWindow
from sims.platforms import checker
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.market import Range
from sims.platforms.scenario import Changes, Kind, PlatformFaults
from tests.support.platforms import KINDS, RunningConnector, running_connector

CROWDED: dict[str, Any] = {"orders": 12_000, "span_seconds": 7_200, "crowd_share": 0.2, "crowd_seconds": 600}
NUMBERED: tuple[Kind, ...] = ("plain", "taobao", "pinduoduo")
LEAVING = Changes(per_page=0.05, created_share=0, in_window_share=1)


def missing(here: RunningConnector, contents: NewestOrdersOfWindow, truth: dict[str, checker.State]) -> list[str]:
    """Orders that are in the window at the end and were not listed."""
    return [order_id for order_id in truth if order_id not in contents.copies]


@pytest.mark.parametrize("kind", NUMBERED)
async def test_a_window_that_orders_leave_is_read_twice(kind: Kind) -> None:
    """The second pass lists no order that the first had not listed: all that stay are there."""
    passes = set[int]()
    for seed in range(4):
        async with running_connector(kind=kind, seed=seed, changes=LEAVING, **CROWDED) as here:
            window = here.window(1_500, until_seconds_ago=600)
            contents = await WindowReader(here.connector, window, None).read_passes_until_confirmed()
            assert missing(here, contents, here.truth(window)) == []
            passes.add(contents.passes)
    assert passes <= {1, 2}
    assert 2 in passes, "nothing moved: nothing was shown"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_restless_window_is_read_to_its_end(kind: Kind, seed: int) -> None:
    """O10: changes before every second page, crowds at the edges of parts: nothing that stays is missed."""
    changes = Changes(per_page=0.5, created_share=0, in_window_share=1)
    async with running_connector(kind=kind, seed=seed, changes=changes, **CROWDED) as here:
        window = here.window(600, until_seconds_ago=600)
        contents = await WindowReader(here.connector, window, None).read_passes_until_confirmed()
        assert missing(here, contents, here.truth(window)) == []


async def test_a_quiet_window_is_read_once() -> None:
    """Two counts and its pages."""
    async with running_connector(**CROWDED) as here:
        window = here.window(1_200)
        contents = await WindowReader(here.connector, window, None).read_passes_until_confirmed()
        assert (contents.passes, contents.total) == (1, len(here.truth(window)))
        assert here.platform.calls["told"] == len(contents.pages) + 2


async def test_totals_that_are_never_reached_are_a_lie() -> None:
    """Read three times, and not for ever."""
    async with running_connector(faults=PlatformFaults(total_off=2), **CROWDED) as here:
        window = here.window(1_200)
        with pytest.raises(InconsistentAnswers, match="orders each time, and does not come to rest: 3 passes") as lie:
            await WindowReader(here.connector, window, None).read_passes_until_confirmed()
        assert "settle_lag" not in lie.value.hint, "waiting does not help where nothing moves"
        assert "`paging.first`" in lie.value.hint
        pages = len(here.truth(window)) // 100 + 1
        assert here.platform.calls["told"] <= 3 * pages + 5


async def test_a_platform_that_tells_smaller_pages_than_asked_is_named_so() -> None:
    """Where it has filled its pages before, it never comes to rest, and the sentence says what may help."""
    async with running_connector(faults=PlatformFaults(page_cap=40), **CROWDED) as here:
        window = here.window(1_200)
        here.connector._client.uncapped_page_sizes.add(100)
        with pytest.raises(InconsistentAnswers, match=r"more than 40 orders, and 100 were asked for.*`paging\.size`"):
            await WindowReader(here.connector, window, None).read_passes_until_confirmed()


async def test_a_platform_that_never_fills_a_page_is_read_to_its_end() -> None:
    """A short page is not believed to be the last one before a page was full."""
    async with running_connector(faults=PlatformFaults(page_cap=40), **CROWDED) as here:
        window = here.window(1_200)
        harvest = await WindowReader(here.connector, window, None).read_passes_until_confirmed()
        assert missing(here, harvest, here.truth(window)) == []
        assert harvest.largest_page == 40


async def replace_second_page(pages: AsyncIterator[OrderPage], by: OrderPage) -> AsyncIterator[OrderPage]:
    """A walk whose second page is another one, which leads nowhere."""
    first = await anext(pages)
    yield first
    yield replace(by, number=1)


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("of", ["another window", "this window", "nothing"])
async def test_a_page_that_answers_another_request_does_not_end_a_window(
    monkeypatch: pytest.MonkeyPatch, of: str, is_confirmed: bool
) -> None:
    """A cache that does not heed the page's token sends an older answer: what was on the page is read once more."""
    async with running_connector(kind="amazon", orders=2_000, span_seconds=3_600) as here:
        window, pages, replaced = here.window(900), here.connector.iterate_pages, list[str]()
        elsewhere = (await here.read(here.window(900, until_seconds_ago=2_000)))[0]
        others = {"another window": elsewhere, "this window": (await here.read(window))[0]}
        other = others.get(of, replace(elsewhere, orders=[], outside=0))
        other = replace(other, outside=len(other.orders) if of == "another window" else 0)

        def read_pages(window: TimeWindow, total: int | None) -> AsyncIterator[OrderPage]:
            walk = pages(window, total)
            if replaced:
                return walk
            replaced.append(of)
            return replace_second_page(walk, other)

        monkeypatch.setattr(here.connector, "iterate_pages", read_pages)
        reader = WindowReader(here.connector, window, None)
        contents = await (
            reader.read_passes_until_confirmed() if is_confirmed else reader.read_in_one_pass_and_check_end()
        )
        assert missing(here, contents, truth := here.truth(window)) == []
        assert (len(truth) > 200, replaced, contents.passes) == (True, [of], 3 if is_confirmed else 2)


async def test_orders_from_outside_do_not_keep_a_window_from_being_confirmed() -> None:
    """The platform does not heed its filter: what it lists is kept, and counted as outside."""
    changes = Changes(per_page=0.02, created_share=0)
    async with running_connector(
        orders=500, span_seconds=3_600, changes=changes, faults=PlatformFaults(ignore_filter=True)
    ) as here:
        contents = await WindowReader(here.connector, here.window(600), None).read_passes_until_confirmed()
        assert contents.outside
        assert len(contents.copies) == 500


@pytest.mark.parametrize(
    ("bound", "seconds"),
    [({"rows_max": 200}, None), ({}, 600), ({"rows_max": 200}, 600)],
    ids=["rows", "window", "both"],
)
async def test_a_window_that_is_not_split_any_more_is_read_in_parts(bound: dict[str, Any], seconds: int | None) -> None:
    """A slice that was complete may hold more by now than its platform lists at a time, or be longer than it allows."""
    query, paging = (getattr(PLAIN, name) for name in ("query", "paging"))
    record = PLAIN.model_copy(
        update={
            "query": query.model_copy(update={"window_max_seconds": seconds}),
            "paging": paging.model_copy(update={"size": 50, "size_max": 50, **bound}),
        }
    )
    async with running_connector(record, orders=1_000, span_seconds=3_600, **bound) as here:
        window = here.window(3_000)
        for read in (WindowReader.read_in_one_pass_and_check_end, WindowReader.read_passes_until_confirmed):
            contents = await read(WindowReader(here.connector, window, None))
            assert missing(here, contents, truth := here.truth(window)) == []
            assert len(truth) > 400
            assert contents.total in (None, len(truth))
        with pytest.raises(WindowTooLarge):
            await WindowReader(here.connector, window, 200).read_passes_until_confirmed()


@pytest.mark.parametrize("total", [PLAIN.total, None], ids=["total", "no total"])
async def test_a_window_is_not_split_where_the_platform_ignores_the_filter(total: Any) -> None:
    """Each part holds as many orders as the whole: a slice would be split down to single seconds."""
    record = PLAIN.model_copy(update={"total": total})
    async with running_connector(
        record, orders=1_000, span_seconds=3_600, faults=PlatformFaults(ignore_filter=True)
    ) as here:
        window = here.window(600, until_seconds_ago=600)
        contents = await WindowReader(here.connector, window, 200).read_passes_until_confirmed()
        assert missing(here, contents, truth := here.truth(window)) == []
        assert len(truth) < 200
        assert (contents.passes, contents.outside) == (2, 1_000 - len(truth)), "of one pass, not of both"


def list_passes(
    here: RunningConnector, window: TimeWindow, passes: list[range], outside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have each pass over a window list one page of its own, some of whose orders count as lying outside."""
    rest = iter(passes)

    async def iterate_pages(_: TimeWindow, total: int | None) -> AsyncIterator[OrderPage]:
        orders = [PlatformOrder("7", "shop-1", str(number), window.start, 0, b"{}") for number in next(rest)]
        yield OrderPage(0, orders, b"", window.end, total, outside, 0)

    monkeypatch.setattr(here.connector, "iterate_pages", iterate_pages)


async def count_ten(_: TimeWindow) -> int:
    """Ten rows."""
    return 10


async def test_a_sweep_that_lists_fewer_orders_than_are_counted_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it misses is not missed for ever: a slice is swept once."""
    async with running_connector(orders=1) as here:
        window = here.window(600)
        list_passes(here, window, [range(9), range(10)], 0, monkeypatch)
        monkeypatch.setattr(here.connector, "fetch_row_count", count_ten)
        contents = await WindowReader(here.connector, window, None).read_in_one_pass_and_check_end()
    assert (len(contents.copies), contents.passes) == (10, 2)


async def test_a_total_that_counts_no_further_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that counts and lists ten at most has not said that there are ten."""
    total = TotalCall(value="$.total", max=10)
    async with running_connector(PLAIN.model_copy(update={"total": total}), orders=1) as here:
        window = here.window(600)
        list_passes(here, window, [range(10), range(10)], 0, monkeypatch)
        monkeypatch.setattr(here.connector, "fetch_row_count", count_ten)
        contents = await WindowReader(here.connector, window, None).read_passes_until_confirmed()
    assert contents.passes == 2


async def test_whether_the_filter_is_ignored_is_seen_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of each pass lies outside: three passes have more of these than half a pass, and the window is split."""
    async with running_connector(PLAIN.model_copy(update={"total": None}), orders=1) as here:
        window = here.window(600)
        list_passes(here, window, [range(99), range(1, 100), range(101)], 20, monkeypatch)
        with pytest.raises(WindowTooLarge):
            await WindowReader(here.connector, window, 100).read_passes_until_confirmed()


@pytest.mark.parametrize(
    "read", [WindowReader.read_passes_until_confirmed, WindowReader.read_in_one_pass_and_check_end]
)
async def test_a_window_whose_every_pass_lists_other_orders_is_not_whole(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for a sweep or a report, which read once where nothing is in doubt."""
    async with running_connector(PLAIN.model_copy(update={"total": None}), orders=1) as here:
        window = here.window(600)
        list_passes(here, window, [range(n, n + 10) for n in range(PASSES_MAX)], 1, monkeypatch)
        with pytest.raises(InconsistentAnswers, match="does not come to rest: 5 passes told 10 rows of 10 orders"):
            await read(WindowReader(here.connector, window, None))


async def test_refused_credentials_are_not_hidden_by_another_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are renewed and reported, whichever of several requests failed first."""
    async with running_connector(kind="taobao", orders=50, span_seconds=600) as here:
        reading = WindowReader(here.connector, here.window(300), None)
        copies = list((await reading.read_passes_until_confirmed()).copies.values())
        failures = iter([PlatformRefused("It refuses the order."), CredentialsRefused("It refuses the key.")])

        async def fail(_: PlatformOrder) -> None:
            raise next(failures)

        monkeypatch.setattr(here.connector, "fetch_details", fail)
        with pytest.raises(CredentialsRefused):
            await reading.fetch_details_of_orders(copies[:2])


async def test_an_older_copy_does_not_take_the_place_of_what_the_list_tells() -> None:
    """A replica that lags behind answers with an order as it was: that is asked for again, and not stored."""
    async with running_connector(kind="taobao", orders=50, span_seconds=600) as here:
        reading = WindowReader(here.connector, here.window(300), None)
        copies = list((await reading.read_passes_until_confirmed()).copies.values())
        assert len(await reading.fetch_details_of_orders(copies)) == len(copies) > 1
        modified = here.platform.market.shown.modified
        modified[:] = [at - 100 * MICRO for at in modified]
        with pytest.raises(InconsistentAnswers, match="is listed as of"):
            await reading.fetch_details_of_orders(copies)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_filter_that_goes_by_the_record_is_confirmed(kind: Kind) -> None:
    """By one listed order, requested by its own second; where none was listed, nothing is confirmed."""
    async with running_connector(kind=kind, orders=50, span_seconds=600) as here:
        full, empty = here.window(300, until_seconds_ago=200), here.window(300, until_seconds_ago=5_000)
        for window, is_right in ((full, True), (empty, False)):
            reading = WindowReader(here.connector, window, None)
            await reading.read_passes_until_confirmed()
            assert await reading.confirm_zone_by_query_at_modification_second() is is_right


async def test_orders_that_change_while_they_are_looked_for_show_no_other_zone() -> None:
    """Each listed order is modified before it is requested by its own second: nothing is confirmed, nothing denied."""
    async with running_connector(orders=50, span_seconds=600) as here:
        market = here.platform.market
        reading = WindowReader(here.connector, here.window(300, until_seconds_ago=200), None)
        await reading.read_passes_until_confirmed()
        listed = reading.contents.copies
        assert len(listed) > ZONE_LOOKS
        for key in market.ascending(market.everything(), 0, len(market.created)):
            market._change(market.now_us, key)
        assert not await reading.confirm_zone_by_query_at_modification_second()


@pytest.mark.parametrize("hours", [-8, 8])
async def test_a_filter_of_another_zone_is_found(hours: int) -> None:
    """A shop-local column compared with UTC, on either side of it: what comes is not what was asked for."""
    async with running_connector(orders=500, span_seconds=20 * 3_600) as here:
        market, right = here.platform.market, here.platform.market.range
        shift_us = hours * 3_600 * MICRO

        def shift_range(first_us: int, last_us: int) -> Range:
            return right(first_us + shift_us, last_us + shift_us)

        market.range = shift_range  # type: ignore[method-assign]
        reading = WindowReader(here.connector, here.window(11 * 3_600, until_seconds_ago=9 * 3_600), None)
        await reading.read_passes_until_confirmed()
        with pytest.raises(WrongTimeZone, match="zone_minutes"):
            await reading.confirm_zone_by_query_at_modification_second()


@asynccontextmanager
async def reading_short_window(hours: int) -> AsyncIterator[tuple[WindowReader, PlatformConnector]]:
    """Ten minutes, twelve hours ago, of a platform whose filter is off by some hours."""
    async with running_connector(orders=4_000, span_seconds=24 * 3_600) as here:
        market, right = here.platform.market, here.platform.market.range
        shift_us = hours * 3_600 * MICRO
        market.range = lambda first_us, last_us: right(first_us + shift_us, last_us + shift_us)  # type: ignore[method-assign]
        reading = WindowReader(here.connector, here.window(600, until_seconds_ago=12 * 3_600), None)
        await reading.read_passes_until_confirmed()
        assert len(reading.contents.copies) >= 3
        yield reading, here.connector


@pytest.mark.parametrize("hours", [-8, 8])
async def test_a_filter_of_another_zone_is_found_in_short_windows(hours: int) -> None:
    """All listed orders lie before the window, or all of it after."""
    async with reading_short_window(hours) as (reading, _):
        with pytest.raises(WrongTimeZone, match="zone_minutes"):
            await reading.confirm_zone_by_query_at_modification_second()


async def test_a_filter_of_another_zone_is_found_where_too_many_orders_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the missing orders have been modified since cannot be seen then, which confirms nothing."""
    async with reading_short_window(8) as (reading, connector):
        count, recent = connector.fetch_row_count, datetime.now(UTC) + connector.clock_skew - timedelta(minutes=5)

        async def count_few(window: TimeWindow) -> int | None:
            if window.end > recent:
                raise TooManyRows("There are too many.", rows=1_000)
            return await count(window)

        monkeypatch.setattr(connector, "fetch_row_count", count_few)
        with pytest.raises(WrongTimeZone, match="zone_minutes"):
            await reading.confirm_zone_by_query_at_modification_second()


async def test_a_filter_of_another_zone_is_found_in_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders of the present with times of a zone before UTC cannot be requested: that they are listed shows enough."""
    async with reading_short_window(8) as (reading, connector):
        monkeypatch.setattr(PlatformConnector, "clock_skew", connector.clock_skew - timedelta(hours=6))
        with pytest.raises(WrongTimeZone, match="zone_minutes"):
            await reading.confirm_zone_by_query_at_modification_second()


async def test_orders_of_other_times_are_no_other_zone() -> None:
    """A platform that ignores its filter lists orders that are as far apart as they like: they are kept, as before."""
    async with running_connector(
        orders=4_000, span_seconds=24 * 3_600, faults=PlatformFaults(ignore_filter=True)
    ) as here:
        reading = WindowReader(here.connector, here.window(600, until_seconds_ago=-7_200), None)
        await reading.read_passes_until_confirmed()
        assert reading.contents.outside
        assert not await reading.confirm_zone_by_query_at_modification_second()


async def test_a_filter_by_creation_is_not_asked_for_modifications() -> None:
    """What a window of creation holds says nothing of when it was modified."""
    async with running_connector(orders=50, span_seconds=600) as here:
        capability = here.connector.capability
        query = capability.query.model_copy(update={"field": FilteredTimestamp.CREATED})
        reading = WindowReader(here.connector, here.window(300), None)
        await reading.read_in_one_pass_and_check_end()
        here.connector.capability = capability.model_copy(update={"query": query})
        asked = here.platform.calls["told"]
        assert not await reading.confirm_zone_by_query_at_modification_second()
        assert here.platform.calls["told"] == asked
