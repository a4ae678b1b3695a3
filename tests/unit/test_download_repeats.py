"""Pages that come again are noticed, whichever fetcher read them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.downloads import repeats
from domain.downloads.repeats import (
    SAME_PAGES_MAX,
    SeenPageMarks,
    build_page_mark,
    require_distinct_pages_or_build_warning,
)
from domain.faults import SourceFault

A, B, SMALL = build_page_mark(100, "a"), build_page_mark(100, "b"), build_page_mark(19, "s")


def add_pages(marks: Sequence[str], *, first: int = 0, allowed: bool = False, endless: bool = True) -> None:
    """Read pages one after another."""
    seen = SeenPageMarks(first, [], is_allowed=allowed, is_endless=endless)
    for number, marked in enumerate(marks, start=first):
        seen.require_no_repetition(number, marked)
        seen.add(number, marked)


def test_a_page_that_comes_again_is_a_fault_that_names_both() -> None:
    """However far apart they are: a cache answers any page with any other."""
    with pytest.raises(SourceFault, match="Pages 4 and 6 of the source have the same 100 rows") as caught:
        add_pages([A, B, A], first=4)
    assert caught.value.doubtful
    assert "first_page" not in caught.value.record.hint


def test_the_first_two_pages_say_what_helps() -> None:
    """Many sources count from 1 and take 0 for 1."""
    with pytest.raises(SourceFault) as caught:
        add_pages([A, A])
    assert "`first_page`: 1" in caught.value.record.hint


def test_what_was_read_before_a_resume_counts() -> None:
    """A fetcher knows the pages that an earlier one staged."""
    seen = SeenPageMarks(10, [A, B], is_allowed=False, is_endless=False)
    seen.require_no_repetition(11, B)  # the same page, asked for again
    with pytest.raises(SourceFault, match="Pages 11 and 12"):
        seen.require_no_repetition(12, B)


def test_empty_and_small_pages_may_be_equal() -> None:
    """By chance; but a small page that comes for ever is no chance."""
    add_pages([A, "", "", B, ""])
    add_pages([SMALL, A, SMALL])
    add_pages([SMALL, SMALL], endless=False)
    with pytest.raises(SourceFault, match="the same 19 rows"):
        add_pages([SMALL, SMALL, SMALL])


def test_repeats_may_be_allowed_but_not_for_ever() -> None:
    """Who allows them gets them, and still an end."""
    add_pages([A, A, B, A], allowed=True)
    with pytest.raises(SourceFault) as caught:
        add_pages([A] * (SAME_PAGES_MAX + 1), allowed=True)
    assert caught.value.record.code == "source_endless"


def test_pages_of_different_fetchers_are_held_against_each_other() -> None:
    """Only who has all of them can."""
    with pytest.raises(SourceFault, match="Pages 1 and 10"):
        require_distinct_pages_or_build_warning([(0, [B, A]), (10, [A])])
    assert require_distinct_pages_or_build_warning([(0, [A, ""]), (10, [B, ""])]) == []


def test_small_pages_that_are_equal_are_told() -> None:
    """A reader of the file should know."""
    (warning,) = require_distinct_pages_or_build_warning(
        [(0, [SMALL, A]), (5, [SMALL, *[build_page_mark(1, "x")] * 9])]
    )
    assert "pages 0 and 5, 6 and 7" in warning
    assert "4 more" in warning


def test_what_is_remembered_tells_how_many_rows_there_were() -> None:
    """Of an empty page nothing is remembered."""
    assert [repeats.parse_row_count(each) for each in (A, SMALL, build_page_mark(0, "z"))] == [100, 19, 0]


def test_rows_that_come_on_two_pages_are_told() -> None:
    """Equal rows of one page are the source's own business."""
    first, second = repeats.build_rows_mark([b"a", b"b", b"b"]), repeats.build_rows_mark([b"c", b"a"])
    (warning,) = repeats.build_repeated_rows_warning_if_any([first, second, repeats.build_rows_mark([b"a"])])
    assert warning.startswith("2 rows of the source came on more than one page")
    assert (
        repeats.build_repeated_rows_warning_if_any(
            [first, repeats.build_rows_mark([]), repeats.build_rows_mark([b"c"])]
        )
        == []
    )
