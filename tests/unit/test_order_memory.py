"""What slices that are read hold in memory is bounded, whatever a platform answers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.orders import reading, slice_attempts
from activities.orders.reading import COPY_BYTES, WindowReader, WindowTooLarge
from clients.http import WaitBeforeReadingBeyondSize
from clients.platforms import AttemptTimeUsedUp, OrderPage, PlatformBusy, TooManyRows, client
from clients.platforms.permits import OWN_WAIT_PAUSE_SECONDS
from domain.faults import SourceFault
from domain.orders.capability import PlatformOrder
from domain.orders.slices import SliceRetryState
from domain.orders.windows import TimeWindow
from infra import memory
from infra.memory import MemoryBudget
from sims.platforms.dialects.plain import ITEMS, PLAIN
from stores.orders import order_copies
from stores.orders.fetched_orders import FetchedOrder
from tests.support.platforms import SMALL_PAGES, RunningConnector, running_connector
from tests.support.waiting import PATIENCE_SECONDS

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KB = 1024
SLICE_BYTES = 400 * KB
PAGE_BYTES = 10 * (4 * KB + COPY_BYTES)
UNCOUNTED = PLAIN.model_copy(update={"total": None})


def order(name: object, size: int) -> PlatformOrder:
    """One of so many bytes."""
    return PlatformOrder("7", "shop-1", str(name), NOW, 0, b"x" * size)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of some hundred thousand bytes are large."""
    monkeypatch.setattr(reading, "SLICE_BYTES_MAX", SLICE_BYTES)
    monkeypatch.setattr(reading, "PROJECTED_FROM_BYTES", SLICE_BYTES // 16)
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)


def list_large_orders(
    here: RunningConnector, monkeypatch: pytest.MonkeyPatch, pages: int, look: Callable[[], int] = int
) -> list[int]:
    """Have each pass list pages of ten orders of 4 KB; return what a look shows before each of them."""
    asked: list[int] = []

    async def iterate_pages(window: TimeWindow, _: int | None) -> AsyncIterator[OrderPage]:
        for number in range(pages):
            asked.append(look())
            await asyncio.sleep(0)
            orders = [order(f"{number}-{place}", 4 * KB) for place in range(10)]
            yield OrderPage(number, orders, b"{}", window.end, None, 0, 0)

    monkeypatch.setattr(here.connector, "iterate_pages", iterate_pages)
    return asked


async def test_a_slice_of_large_orders_is_split_before_they_are_all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a total when it holds too much; with one as soon as it shows that it will."""
    async with running_connector(UNCOUNTED, orders=1) as here:
        asked = list_large_orders(here, monkeypatch, pages=100)
        reader = WindowReader(here.connector, here.window(600), 10_000)
        with pytest.raises(WindowTooLarge):
            await reader.read_passes_until_confirmed()
        assert len(asked) == 9
        assert reader.contents.memory_bytes == 9 * PAGE_BYTES

    async with running_connector(orders=1) as here:
        asked = list_large_orders(here, monkeypatch, pages=100)

        async def count(_: TimeWindow) -> int:
            return 1_000

        monkeypatch.setattr(here.connector, "fetch_row_count", count)
        with pytest.raises(WindowTooLarge):
            await WindowReader(here.connector, here.window(600), 10_000).read_passes_until_confirmed()
        assert len(asked) == 1


async def test_a_window_that_cannot_be_split_is_read_however_large_its_orders_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one of a second, or one that was complete."""
    async with running_connector(UNCOUNTED, orders=1) as here:
        list_large_orders(here, monkeypatch, pages=20)
        contents = await WindowReader(here.connector, here.window(600), None).read_passes_until_confirmed()
        assert len(contents.copies) == 200


async def test_a_second_pass_over_orders_that_fit_splits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first page has few of the orders that are held by then."""
    async with running_connector(orders=1) as here:
        asked = list_large_orders(here, monkeypatch, pages=8)
        totals = iter([81, 80, 80])

        async def count(_: TimeWindow) -> int:
            return next(totals)

        monkeypatch.setattr(here.connector, "fetch_row_count", count)
        contents = await WindowReader(here.connector, here.window(600), 10_000).read_passes_until_confirmed()
        assert (len(contents.copies), contents.passes, len(asked)) == (80, 2, 16)


async def test_a_slice_that_waits_for_memory_in_vain_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is this installation's: a timer waits for it, as often as it takes, although nothing was gained."""
    budget = MemoryBudget(PAGE_BYTES)
    async with running_connector(UNCOUNTED, orders=1) as here:
        list_large_orders(here, monkeypatch, pages=8)
        here.connector.budget.patience_seconds = 0.2
        with budget.hold() as oldest, budget.hold() as held:
            await oldest.add(PAGE_BYTES)
            with pytest.raises(PlatformBusy, match="all the memory") as raised:
                await WindowReader(here.connector, here.window(600), 10_000, held).read_passes_until_confirmed()
    failure = slice_attempts.add_resume_point_and_decide_retryable(
        slice_attempts.to_attempt_failure(raised.value), raised.value, None, here.connector.answer_log.gained
    )
    assert (failure.is_own_limit, failure.gained, failure.fault.retryable) == (True, 0, True)
    retries = SliceRetryState()
    for _ in range(2_000):
        assert retries.record_failure_and_compute_pause(failure, retries=1, retryintv=1) == OWN_WAIT_PAUSE_SECONDS


async def test_what_is_thrown_away_and_read_in_parts_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an order that two parts list."""
    budget = MemoryBudget(math.inf)
    async with running_connector(UNCOUNTED, orders=1) as here:
        whole = here.window(600)

        async def iterate_pages(window: TimeWindow, _: int | None) -> AsyncIterator[OrderPage]:
            orders = [order(name, 4 * KB) for name in (window.start, "of each")]
            yield OrderPage(0, orders, b"{}", window.end, None, 0, 0)
            if window == whole:
                raise TooManyRows("It withholds some.", rows=3)

        monkeypatch.setattr(here.connector, "iterate_pages", iterate_pages)
        with budget.hold() as held:
            contents = await WindowReader(here.connector, whole, None, held).read_passes_until_confirmed()
            assert len(contents.copies) == 3
            assert held.bytes == contents.memory_bytes == 3 * (4 * KB + COPY_BYTES)


async def test_details_take_the_place_of_what_was_listed() -> None:
    """Readings are compared by what was listed all the same."""
    budget = MemoryBudget(math.inf)
    async with running_connector(PLAIN.model_copy(update={**SMALL_PAGES, "detail": ITEMS}), orders=50) as here:
        with budget.hold() as held:
            reader = WindowReader(here.connector, here.window(40_000), None, held)
            contents = await reader.read_passes_until_confirmed()
            listed, digest = held.bytes, contents.digest
            details = await reader.fetch_details_of_orders(list(contents.copies.values()))
            sizes = [len(each.order.raw) + COPY_BYTES for each in details]
            assert len(sizes) > 1
            assert held.bytes == contents.memory_bytes == sum(sizes) > listed
            assert contents.digest == digest
            assert {id(each.order) for each in contents.copies.values()} == {id(each.order) for each in details}


async def test_slices_that_are_read_together_hold_no_more_than_the_process_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty slices that fit: together the limit, a page of each, and what the oldest holds beyond it."""
    limit, budget = 600 * KB, MemoryBudget(600 * KB)
    async with running_connector(UNCOUNTED, orders=1) as here:
        held = list_large_orders(here, monkeypatch, pages=8, look=lambda: sum(each.bytes for each in budget._held))

        async def read() -> int:
            with budget.hold() as held:
                reader = WindowReader(here.connector, here.window(600), 10_000, held)
                return len((await reader.read_passes_until_confirmed()).copies)

        assert await asyncio.gather(*(read() for _ in range(20))) == [80] * 20
        assert budget._held == {}
    assert limit < max(held) <= limit + (20 + 8) * PAGE_BYTES < 20 * 8 * PAGE_BYTES


async def test_pages_as_received_and_answers_take_a_fraction_of_their_size() -> None:
    """Both are kept until a slice is committed, and seldom needed."""
    async with running_connector(orders=3_000, span_seconds=3_600) as here:
        contents = await WindowReader(here.connector, here.window(3_000), None).read_passes_until_confirmed()
        bodies = [each.body for each in contents.pages] + [each.body for each in here.connector.answer_log._kept]
        assert sum(len(body._compressed) for body in bodies) * 4 < sum(body.size for body in bodies)


async def test_one_large_answer_of_a_platform_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits at its beginning."""
    monkeypatch.setattr(client, "LARGE_ANSWER_BYTES", KB)
    async with running_connector(orders=3_000, span_seconds=3_600) as here:
        slot, window = here.connector._client._gate.large_answers, here.window(3_000)
        async with slot:
            large = asyncio.create_task(here.connector.fetch_first_page(window))
            assert await asyncio.wait_for(here.connector.fetch_row_count(window), PATIENCE_SECONDS)
            done, _ = await asyncio.wait([large], timeout=0.3)
            assert not done
        assert len((await asyncio.wait_for(large, PATIENCE_SECONDS)).orders) == 100
        assert not slot.locked()


async def test_a_large_answer_waits_for_another_no_longer_than_its_attempt_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a timer waits, and the platform has not failed; what it waited is not what the platform was slow with."""
    monkeypatch.setattr(client, "LARGE_ANSWER_BYTES", KB)
    async with running_connector(orders=3_000, span_seconds=3_600) as here:
        slot, window, budget = here.connector._client._gate.large_answers, here.window(3_000), here.connector.budget
        budget.patience_seconds = 2.0
        async with slot:
            with pytest.raises(PlatformBusy, match="large answers") as raised:
                await asyncio.wait_for(here.connector.fetch_first_page(window), PATIENCE_SECONDS)
        assert (raised.value.is_local, raised.value.is_transient) == (True, False)
        assert budget.slowest_answer_seconds < 1.9
        budget.until = time.monotonic() + 2
        async with slot:
            with pytest.raises(PlatformBusy, match="large answers"):
                await asyncio.wait_for(here.connector.fetch_first_page(window), PATIENCE_SECONDS)
        assert not slot.locked()


async def test_a_request_that_has_waited_ends_with_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait extends its timeout no farther."""
    async with running_connector(orders=1) as here:
        budget = here.connector.budget

        async def get(*_: Any, wait_beyond: WaitBeforeReadingBeyondSize, timeout_seconds: float, **__: Any) -> None:
            assert timeout_seconds == 1
            await wait_beyond.wait()
            left_seconds = wait_beyond.until - asyncio.get_running_loop().time()
            assert left_seconds == pytest.approx(budget.until - time.monotonic(), abs=0.1)
            raise SourceFault("source_timeout", "It took too long.", "")

        budget.patience_seconds, budget.answer_seconds, budget.until = 5.0, 1.0, time.monotonic() + 2.4
        monkeypatch.setattr(here.connector._client._http, "get", get)
        slot = here.connector._client._gate.large_answers
        await slot.acquire()
        asyncio.get_running_loop().call_later(1.5, slot.release)
        with pytest.raises(AttemptTimeUsedUp):
            await here.connector.fetch_first_page(here.window(60))


def test_orders_are_written_in_batches_of_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones in smaller batches; none is left out, none comes twice."""
    monkeypatch.setattr(order_copies, "BATCH_BYTES", 100)
    sizes: list[Any] = [10] * 7 + [250] + [10] * 25 + [99, 1]
    copies = [FetchedOrder(order(number, size), NOW + timedelta(seconds=number)) for number, size in enumerate(sizes)]
    batches = [*order_copies._split_batches(copies, 6)]
    assert [copy for batch in batches for copy in batch] == copies
    assert [len(batch) for batch in batches] == [6, 2, 6, 6, 6, 6, 2, 1]
    assert [*order_copies._split_batches([], 6)] == []
