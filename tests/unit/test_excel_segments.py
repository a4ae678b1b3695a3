"""Rows are shared out among as few books as will do, evenly, in order, and completely."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.plan import FILL_RATIO, RowSegment, TooManyRowsForBook, plan_segments, plan_single_book


@given(
    rows=st.integers(0, 5_000_000),
    row_bytes=st.floats(0, 500),
    max_bytes=st.integers(1_000_000, 50_000_000),
    max_rows=st.integers(50_000, 1_000_000),
)
def test_every_row_lies_in_one_segment(rows: int, row_bytes: float, max_bytes: int, max_rows: int) -> None:
    """None lost, none doubled, none too many; sizes differ by a row at most; the last one knows that it is."""
    found = plan_segments(rows, row_bytes, max_bytes, max_rows)

    ends = [segment.first_row + segment.rows for segment in found]
    assert [0, *ends[:-1]] == [segment.first_row for segment in found]
    assert ends[-1] == rows
    assert max(segment.rows for segment in found) <= max_rows
    assert max(segment.rows for segment in found) - min(segment.rows for segment in found) <= 1
    assert [segment.is_last for segment in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(
    ("rows", "row_bytes", "count"),
    [(0, 50, 1), (1, 50, 1), (100_000, 50, 1), (184_000, 50, 1), (200_000, 50, 2), (1_000_000, 50, 6), (900_000, 1, 2)],
)
def test_as_few_as_will_do(rows: int, row_bytes: float, count: int) -> None:
    """A book is planned to be nearly full."""
    assert FILL_RATIO == 0.92
    assert len(plan_segments(rows, row_bytes, 10_000_000, 800_000)) == count


def test_a_book_that_stays_one_has_a_limit_too() -> None:
    """Rows under row heads cannot be split."""
    assert [(segment.rows, segment.whole, segment.is_last) for segment in plan_single_book(10, 10)] == [
        (10, True, True)
    ]
    with pytest.raises(TooManyRowsForBook):
        plan_single_book(11, 10)


def test_names_of_books_sort_as_the_books_follow_each_other() -> None:
    """Also those of a segment that had to become several, however many."""
    names = [
        RowSegment(number=number, count=12, first_row=0, rows=1).build_book_name(place, "订单")
        for number in range(12)
        for place in range(60)
    ]

    assert names[:3] == ["订单-01.xlsx", "订单-01b.xlsx", "订单-01c.xlsx"]
    assert len(set(names)) == len(names)
    assert sorted(names) == names
