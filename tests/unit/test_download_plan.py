"""The plan shares the pages of a source among fetchers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads import plan
from domain.downloads.plan import Extent, PageRange
from domain.faults import SourceFault


@pytest.mark.parametrize(
    ("total", "page_size", "expected"),
    [
        (0, 500, 1),
        (1, 500, 1),
        (200_000, 500, 1),  # exactly 400 pages: still linear
        (200_001, 500, 4),  # 401 pages: one fetcher for each 100
        (249_999, 500, 4),
        (250_000, 500, 5),
        (200_000, 250, 5),  # 800 pages ask for 8; 5 is the most
        (1_000_000, 500, 5),
    ],
)
def test_fetchers_follow_the_rule(total: int, page_size: int, expected: int) -> None:
    """One fetcher up to 400 pages, then one for each 100 pages, at most five."""
    assert plan.fetchers(total, page_size) == expected


@given(st.integers(0, 3_000_000), st.integers(100, 1_000), st.integers(1, 5))
def test_ranges_cover_every_page_once_and_in_order(total: int, page_size: int, count: int) -> None:
    """Put one after another, the ranges are all the pages, and their rows are all the rows."""
    ranges = plan.ranges(total, page_size, count)

    assert [each.index for each in ranges] == list(range(count))
    assert [each.first for each in ranges] == [0, *(each.end for each in ranges[:-1])]
    assert ranges[-1].end == plan.page_count(total, page_size)
    assert sum(plan.rows_of_range(each, total, page_size) for each in ranges) == total
    pages = [(each.end or 0) - each.first for each in ranges]
    assert max(pages) - min(pages) <= 1


@pytest.mark.parametrize(
    ("total", "row_bytes", "fetchers", "expected"),
    [
        (None, 100.0, 1, 1),
        (200_000, 100.0, 1, 1),  # a linear plan is one range
        (250_000, 100.0, 5, 5),  # 25 MB: one range each
        (1_000_000, 120.0, 5, 10),  # 120 MB: two ranges of one part for each
        (1_500_000, 120.0, 5, 15),
        (100_000_000, 120.0, 5, 500),
    ],
)
def test_large_sources_have_more_ranges_than_fetchers(
    total: int | None, row_bytes: float, fetchers: int, expected: int
) -> None:
    """A range weighs about one part, so that fetchers end together, and there are never too many."""
    assert plan.range_count(total, row_bytes, fetchers) == expected


def test_no_total_means_one_fetcher_without_end() -> None:
    """Where the source does not tell its total, one fetcher goes on until there is no more."""
    assert plan.fetchers(None, 500) == 1
    assert plan.ranges(None, 500, 1) == [PageRange(index=0, first=0, end=None)]


@pytest.mark.parametrize(
    ("total", "gaps_allowed", "rows", "told", "code"),
    [
        (250, False, 100, 250, None),
        (250, False, 100, None, None),  # a source may tell its total only once
        (250, False, 99, 250, "source_page_size"),
        (250, False, 101, 250, "source_page_size"),
        (250, False, 100, 251, "source_total_changed"),
        (250, True, 0, 250, None),
        (250, True, 101, 250, "source_page_size"),
        (None, False, 7, None, None),
        (None, False, 101, None, "source_page_size"),
        (None, True, 0, None, None),
    ],
)
def test_pages_are_held_against_what_is_known(
    total: int | None, gaps_allowed: bool, rows: int, told: int | None, code: str | None
) -> None:
    """The second page of 100: too short, too long, or of another total is a fault that may pass."""
    extent = Extent(total=total, page_size=100, gaps_allowed=gaps_allowed)

    if code is None:
        extent.check(1, rows, told)
        return
    with pytest.raises(SourceFault) as caught:
        extent.check(1, rows, told)
    assert (caught.value.record.code, caught.value.transient) == (code, True)


@pytest.mark.parametrize(
    ("gaps_allowed", "rows", "last"), [(False, 100, False), (False, 99, True), (True, 99, False), (True, 0, True)]
)
def test_the_last_page_shows_itself(gaps_allowed: bool, rows: int, last: bool) -> None:
    """Without a total a short page is the last one; where short pages are normal, only an empty one is."""
    assert Extent(total=None, page_size=100, gaps_allowed=gaps_allowed).is_last(rows) is last


@given(st.integers(0, 100_000), st.integers(100, 1_000))
def test_rows_of_pages_add_up(total: int, page_size: int) -> None:
    """Every page is full but the last."""
    rows = [plan.rows_of_page(page, total, page_size) for page in range(plan.page_count(total, page_size))]

    assert sum(rows) == total
    assert all(count == page_size for count in rows[:-1])
    assert all(count > 0 for count in rows)
