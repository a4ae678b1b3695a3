"""Numbered pages against drawn platforms: what stays in the window is listed, or the walk ends in a sentence."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import pytest

from clients.platforms import InconsistentAnswers, OrderPage, pagination
from domain.orders.capability import Paging, PagingByNumberCursorTokenOrLink, PlatformOrder
from domain.orders.confirmation import PagingPassHistory, PagingPassVerdict

SIZE: Final = 5
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
REQUESTS_MAX: Final = 200


@dataclass
class Platform:
    """Rows in numbered pages, some of which leave while they are read."""

    rows: list[str]
    chance: random.Random
    leaving: float = 0
    is_clamped: bool = False
    """Whether it repeats its last page behind the last one."""
    ignores_page: bool = False
    tells_more: bool = False
    more_for_ever: bool = False
    is_unsorted: bool = False
    """Whether each request finds the rows in another order."""
    rows_of_a_page: int = SIZE
    """How many it lists on a page of those that were requested."""
    fills_pages: bool = True
    """Whether it is known to list as many as are requested."""
    asked: list[int] = field(default_factory=list)

    async def read(self, place: int, number: int) -> pagination.PageWithNextToken:
        """One page."""
        self.asked.append(number)
        if self.is_unsorted:
            self.chance.shuffle(self.rows)
        assert len(self.asked) < REQUESTS_MAX
        rows = self.rows_of_a_page
        last = max(1, -(-len(self.rows) // rows))
        shown = 1 if self.ignores_page else min(number, last) if self.is_clamped else number
        ids = self.rows[(shown - 1) * rows : shown * rows]
        self.fills_pages = self.fills_pages or len(ids) >= SIZE
        more = True if self.more_for_ever else number < last if self.tells_more else None
        while self.rows and self.chance.random() < self.leaving:
            self.rows.remove(self.chance.choice(self.rows))
        return pagination.PageWithNextToken(
            OrderPage(place, [_order(each) for each in ids], b"", NOW, None, 0, 0), more
        )

    async def walk(self, total: int | None) -> list[str]:
        """The ids of all that one walk lists."""
        return [order.order_id for page in await self.pages(total) for order in page.orders]

    async def pages(self, total: int | None) -> list[OrderPage]:
        """The pages of one walk."""
        more = "$.more" if self.tells_more or self.more_for_ever else None
        paging = Paging(
            kind=PagingByNumberCursorTokenOrLink.NUMBER,
            parameter="page",
            size_parameter="size",
            size=SIZE,
            size_max=SIZE,
            more=more,
        )
        read = pagination.iterate_numbered_pages(self.read, paging, total, lambda: self.fills_pages)
        return [page async for page in read]


def _order(order_id: str) -> PlatformOrder:
    return PlatformOrder("1", "shop", order_id, NOW, 0, b"{}")


def _rows(count: int) -> list[str]:
    return [f"order-{number}" for number in range(count)]


@pytest.mark.parametrize("seed", range(400))
async def test_what_stays_is_told(seed: int) -> None:
    """With and without totals, clamped or not, while rows leave between any two requests."""
    chance = random.Random(seed)
    count = chance.choice([0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, chance.randrange(40)])
    clamped = chance.random() < 0.3
    leaving = chance.choice([0, 0.3, 0.6])
    platform = Platform(_rows(count), chance, leaving, is_clamped=clamped, tells_more=chance.random() < 0.3)
    total = chance.choice([None, count, max(0, count - chance.randrange(1, 8)), count + chance.randrange(1, 8)])
    platform.rows_of_a_page = chance.choice([SIZE, SIZE, SIZE - 2])
    platform.fills_pages = platform.rows_of_a_page == SIZE and chance.random() < 0.5

    try:
        told = await platform.walk(total)
    except InconsistentAnswers:
        # One full page that comes again and again: whether more follow it, no client can know. Or pages are capped.
        assert platform.rows_of_a_page < SIZE or (clamped and len(platform.rows) <= SIZE)
    else:
        assert set(platform.rows) <= set(told)


@pytest.mark.parametrize("seed", range(100))
async def test_pages_that_are_sorted_anew_are_never_a_whole_window(seed: int) -> None:
    """Without a total, only the way back shows that the way to the last page passed orders by."""
    rows = _rows(8 * SIZE + seed % SIZE)
    platform = Platform(list(rows), random.Random(seed), is_unsorted=True)
    passes, verdict = PagingPassHistory(has_totals=False, may_stir=False), PagingPassVerdict.AGAIN
    while verdict is PagingPassVerdict.AGAIN:
        platform.asked.clear()
        pages = await platform.pages(None)
        told = [order.order_id for page in pages for order in page.orders]
        verdict = passes.add_pass(
            None,
            told,
            None,
            repeated=sum(page.repeated for page in pages),
            is_unsorted=any(page.is_unsorted for page in pages),
        )
    assert verdict is PagingPassVerdict.UNSTABLE


async def test_a_walk_in_which_nothing_moves_shows_no_difference() -> None:
    """The pages of both ways are the same."""
    pages = await Platform(_rows(4 * SIZE), random.Random(1)).pages(None)

    assert {(page.repeated, page.is_unsorted) for page in pages} == {(0, False)}


@pytest.mark.parametrize("seed", range(400))
async def test_orders_that_leave_keep_the_sequence_of_the_others(seed: int) -> None:
    """What leaves pulls others forward on both ways, and no page looks as if it had been sorted anew."""
    chance = random.Random(seed)
    platform = Platform(_rows(chance.randrange(60)), chance, leaving=0.6, tells_more=seed % 2 == 0)

    assert not any(page.is_unsorted for page in await platform.pages(None))


@pytest.mark.parametrize("seed", range(20))
async def test_from_the_first_page_on_rows_would_be_lost(seed: int) -> None:
    """The proof that the test above could fail: read forwards, those that leave pull others past us."""
    lost = 0
    for turn in range(20):
        platform = Platform(_rows(30), random.Random(seed * 100 + turn), 0.5)
        told = [order.order_id for number in range(1, 8) for order in (await platform.read(0, number)).page.orders]
        lost += len(set(platform.rows) - set(told))
    assert lost


@pytest.mark.parametrize("count", [SIZE, SIZE + 1, 3 * SIZE, 40])
@pytest.mark.parametrize("has_total", [True, False])
async def test_a_page_number_that_is_not_heeded_is_never_a_whole_window(count: int, has_total: bool) -> None:
    """All pages are the same, and there are more rows, or may be."""
    platform = Platform(_rows(count), random.Random(1), ignores_page=True)
    if count == SIZE and has_total:
        assert set(await platform.walk(count)) == set(platform.rows)
        return
    with pytest.raises(InconsistentAnswers, match="the very same orders"):
        await platform.walk(count if has_total else None)
    assert len(platform.asked) < 12


@pytest.mark.parametrize("count", [0, 3, SIZE, 12])
@pytest.mark.parametrize("is_clamped", [True, False])
async def test_more_for_ever_ends_in_a_sentence(count: int, is_clamped: bool) -> None:
    """It says after its last page that there are more."""
    platform = Platform(_rows(count), random.Random(1), is_clamped=is_clamped, more_for_ever=True)
    with pytest.raises(InconsistentAnswers, match="there are more"):
        await platform.walk(None)


@pytest.mark.parametrize(
    ("count", "total", "asked"),
    [
        (3, 3, [1]),
        (0, 0, [1]),
        (12, 12, [3, 2, 1]),
        (10, 10, [3, 2, 1]),
        (3, None, [2, 1]),
        (0, None, [2, 1]),
        (12, None, [2, 3, 4, 3, 2, 1]),
        (12, 4, [1, 2, 3, 2, 1]),
    ],
)
async def test_no_more_is_asked_for_than_it_takes(count: int, total: int | None, asked: list[int]) -> None:
    """Pages in the order of their requests."""
    platform = Platform(_rows(count), random.Random(1))
    await platform.walk(total)
    assert platform.asked == asked


@pytest.mark.parametrize("total", [1, 2, 3, 11, 13], ids=str)
async def test_a_capped_page_is_not_the_last_one_whatever_the_total(total: int) -> None:
    """A platform that caps its pages and reports the rows of a page as the total lost all orders but a page of them."""
    platform = Platform(_rows(11), random.Random(1), rows_of_a_page=2, fills_pages=False)
    assert set(await platform.walk(total)) == set(platform.rows)


async def test_a_short_page_costs_one_request_more_until_a_page_was_full() -> None:
    """The page behind it is read first, and the short one not twice; nothing is added once a page was full."""
    platform = Platform(_rows(3), random.Random(1), fills_pages=False)
    await platform.walk(3)
    assert platform.asked == [2, 1]
    platform.rows = _rows(SIZE + 1)
    await platform.walk(SIZE + 1)
    assert platform.asked == [2, 1, 3, 2, 1]
    await platform.walk(SIZE + 1)
    assert platform.asked == [2, 1, 3, 2, 1, 2, 1]
