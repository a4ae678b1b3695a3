"""The plan shares the pages of a source among fetchers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads import plan
from domain.downloads.plan import PageRange, SourceExtent
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
    assert plan.choose_fetcher_count(total, page_size) == expected


@given(st.integers(0, 3_000_000), st.integers(100, 1_000), st.integers(1, 5))
def test_ranges_cover_every_page_once_and_in_order(total: int, page_size: int, count: int) -> None:
    """Put one after another, the ranges are all the pages, and their rows are all the rows."""
    ranges = plan.plan_ranges(total, page_size, count)

    assert [each.index for each in ranges] == list(range(count))
    assert [each.first for each in ranges] == [0, *(each.end for each in ranges[:-1])]
    assert ranges[-1].end == plan.count_pages(total, page_size)
    assert sum(plan.count_rows_of_range(each, total, page_size) for each in ranges) == total
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
    assert plan.choose_range_count(total, row_bytes, fetchers) == expected


def test_no_total_means_one_fetcher_without_end() -> None:
    """If the source reports no total, one fetcher goes on until there is no more."""
    assert plan.choose_fetcher_count(None, 500) == 1
    assert plan.plan_ranges(None, 500, 1) == [PageRange(index=0, first=0, end=None)]


@pytest.mark.parametrize(
    ("total", "gaps_allowed", "rows", "told", "code"),
    [
        (250, False, 100, 250, None),
        (250, False, 100, None, None),  # a source may report its total only once
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
    """The second page of 100: too short, too long, or of another total is a fault if it comes so again."""
    extent = SourceExtent(total=total, page_size=100, gaps_allowed=gaps_allowed)

    if code is None:
        extent.require_page_fits_total_and_size(1, rows, told)
        return
    with pytest.raises(SourceFault) as caught:
        extent.require_page_fits_total_and_size(1, rows, told)
    assert (caught.value.record.code, caught.value.transient, caught.value.doubtful) == (code, False, True)


def test_a_short_page_that_says_that_more_follows_is_right() -> None:
    """The answer's own flag counts, whatever the request says."""
    SourceExtent(total=250, page_size=100).require_page_fits_total_and_size(1, 3, 250, has_more=True)


def test_pages_are_told_by_the_source_s_own_numbers() -> None:
    """A source that counts from 1 calls the second page 2."""
    with pytest.raises(SourceFault, match="Page 2 holds 3 rows"):
        SourceExtent(total=250, page_size=100, first_page=1).require_page_fits_total_and_size(1, 3, 250)


@pytest.mark.parametrize(("total", "looks"), [(0, False), (None, False), (99, False), (100, True), (101, False)])
def test_only_a_full_last_page_asks_for_a_look_beyond(total: int | None, looks: bool) -> None:
    """A short one shows by itself that it is the last."""
    assert SourceExtent(total=total, page_size=100).is_last_page_full is looks


def test_rows_behind_the_last_page_show_that_the_total_is_none() -> None:
    """Some sources report the rows of the page, or no more than 10,000."""
    extent = SourceExtent(total=10_000, page_size=100)
    extent.require_empty_page_after_end(0)
    with pytest.raises(SourceFault, match="page 100, behind its last row, has 7 rows"):
        extent.require_empty_page_after_end(7)


def test_a_source_without_a_total_has_an_end() -> None:
    """It may have many pages and some that are empty, not too many of either."""
    plan.raise_if_too_many_or_empty_pages(19_999, 19_999, ["100:a"] * 100)
    plan.raise_if_too_many_or_empty_pages(19_999, 20_000, ["100:a"] * 100)
    plan.raise_if_too_many_or_empty_pages(100, 100, ["100:a", *[""] * 49])
    with pytest.raises(SourceFault, match="20,001 was not the last"):
        plan.raise_if_too_many_or_empty_pages(20_000, 20_001, ["100:a"] * 100)
    with pytest.raises(SourceFault, match="50 empty pages in a row"):
        plan.raise_if_too_many_or_empty_pages(100, 100, ["100:a", *[""] * 50])


@pytest.mark.parametrize(("rows", "smaller"), [(1_000, 100), (500, 50), (101, 20), (100, 20), (21, 20), (20, None)])
def test_pages_that_take_too_long_become_smaller(rows: int, smaller: int | None) -> None:
    """A tenth, but never so small that equal pages may be chance."""
    assert SourceExtent(total=None, page_size=rows, honours_page_size=True).smaller_page_size == smaller
    assert SourceExtent(total=None, page_size=rows).smaller_page_size is None
    assert SourceExtent(total=rows, page_size=rows, honours_page_size=True, is_whole=True).smaller_page_size is None


@given(st.integers(0, 100_000), st.integers(100, 1_000))
def test_rows_of_pages_add_up(total: int, page_size: int) -> None:
    """Every page is full but the last."""
    rows = [plan.count_rows_of_page(page, total, page_size) for page in range(plan.count_pages(total, page_size))]

    assert sum(rows) == total
    assert all(count == page_size for count in rows[:-1])
    assert all(count > 0 for count in rows)
