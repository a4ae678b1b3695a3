"""The plan shares the pages of a source among fetchers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads import plan


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
    assert max(each.pages for each in ranges) - min(each.pages for each in ranges) <= 1


@given(st.integers(0, 100_000), st.integers(100, 1_000))
def test_rows_of_pages_add_up(total: int, page_size: int) -> None:
    """Every page is full but the last."""
    rows = [plan.rows_of_page(page, total, page_size) for page in range(plan.page_count(total, page_size))]

    assert sum(rows) == total
    assert all(count == page_size for count in rows[:-1])
    assert all(count > 0 for count in rows)
