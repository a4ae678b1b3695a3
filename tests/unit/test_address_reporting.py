"""The workbook of a comparison of modules."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import openpyxl

from activities.addresses import drift
from activities.addresses.drift import AddressIdAndRecordDigest, Fingerprints, render_comparison_workbook
from domain.addresses.activity_models import ModuleComparisonCounts
from domain.addresses.operations import Module
from stores.addresses.search import LastWriteAndUnfinishedIds

LIVE = AddressIdAndRecordDigest(2**53 + 1, "ab" * 32)


def build_report(shown: int) -> ModuleComparisonCounts:
    """A report with this number of differences."""
    return ModuleComparisonCounts(
        comparison_id="20260301T120000Z",
        made_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        compared=9,
        uprns_by_module=dict.fromkeys(Module, 8),
        different=shown,
        presence_differs=shown,
        address_id_differs=0,
        record_differs=0,
        in_workbook=shown,
        with_unfinished_message=0,
        key="k",
    )


def test_addresses_that_differ_have_a_column_for_each_module() -> None:
    """In the order in which they were found, every number to its last digit, with the messages that touch them."""
    sides: list[Fingerprints] = [
        {**dict.fromkeys(Module, LIVE), Module.OD: None},
        {**dict.fromkeys(Module, None), Module.IM: AddressIdAndRecordDigest(5, "cd" * 32)},
    ]
    shown = [
        difference
        for uprn, side in zip([90, 7], sides, strict=True)
        if (difference := drift.find_difference(uprn, side))
    ]

    book = openpyxl.load_workbook(
        io.BytesIO(
            render_comparison_workbook(
                build_report(2),
                shown,
                [LastWriteAndUnfinishedIds(11, None), LastWriteAndUnfinishedIds(None, 12)],
            )
        )
    )

    heads, first, second = book["addresses"].iter_rows(values_only=True)
    rows = [dict(zip(heads, row, strict=True)) for row in (first, second)]
    by_module = [f"{module} {what}" for module in Module for what in ("address_id", "record")]
    assert list(heads) == ["uprn", "differs in", *by_module, "last message", "open message"]
    assert [row["uprn"] for row in rows] == ["90", "7"]
    assert {row["differs in"] for row in rows} == {"presence"}
    assert (rows[0]["im address_id"], rows[0]["im record"]) == (str(2**53 + 1), "ab" * 6)
    assert (rows[0]["od address_id"], rows[0]["od record"]) == (None, None)
    assert [name for name in by_module if rows[1][name]] == ["im address_id", "im record"]
    assert [(row["last message"], row["open message"]) for row in rows] == [("11", None), (None, "12")]


def test_a_comparison_without_a_difference_has_its_figures_and_heads() -> None:
    """Figures are numbers."""
    book = openpyxl.load_workbook(io.BytesIO(render_comparison_workbook(build_report(0), [], [])))

    figures = dict(book["comparison"].iter_rows(min_row=2, values_only=True))
    assert (figures["compared"], figures["different"], figures["uprns in im"]) == (9, 0, 8)
    assert figures["made_at"] == "2026-03-01T12:00:00Z"
    assert book["addresses"].max_row == 1
    assert book["addresses"]["A1"].value == "uprn"
