"""Warnings about an export's workbooks are given once, for all of them."""

from __future__ import annotations

from typing import Any

from excel.limits import WorkbookSizeAndCellChanges, list_warnings


def build_report(**says: Any) -> WorkbookSizeAndCellChanges:
    return WorkbookSizeAndCellChanges(rows=1, bytes=1, **says)


def test_counts_are_those_of_all_books() -> None:
    """A column is empty if it is in all of them."""
    reports = [
        build_report(cut_cells=2, empty_columns=["A", "B"], empty_places="3", long_numbers=1_000, plain_links=1),
        build_report(cut_cells=1, empty_columns=["B", "C"], empty_places="6", long_numbers=1),
    ]

    assert list_warnings(reports) == [
        "Numbers written as texts, as they have more digits than Excel keeps: 1,001.",
        "Texts that were cut, as they were longer than a cell of Excel holds: 3.",
        "Addresses written as texts, as a sheet has 65,530 links at most: 1.",
        "The column “B” is empty: no row has a value for it.",
    ]


def test_nothing_to_tell() -> None:
    """Most exports have no warning."""
    assert list_warnings([build_report(), build_report()]) == []


def test_reports_of_an_earlier_version_name_no_empty_column() -> None:
    """A download that runs during an upgrade has them in its history: an error would be repeated for ever."""
    old, new = build_report(empty_columns=["A"]), build_report(empty_columns=["A"], empty_places="1")

    assert [list_warnings(each) for each in ([old, old], [old, new], [new, old])] == [[], [], []]


def test_titles_of_empty_columns_are_kept_of_the_first_book_only() -> None:
    """The reports of hundreds of books are one message of a workflow, which takes 2 MB."""
    titles = [f"第 {n} 列" for n in range(2_000)]
    report = build_report(empty_columns=titles, empty_places=format((1 << 2_000) - 1, "x"))
    reports = [report.build_copy_for_list(is_first=number == 0) for number in range(400)]

    assert len(list_warnings(reports)) == 2_000
    assert sum(len(each.model_dump_json().encode()) for each in reports) < 500_000
