"""The bench of Excel books: what counts as the same cells, and what its figures say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xlsxwriter import Workbook

from bench.excel import content, figures, proof
from bench.excel.contenders import WriterRun
from bench.excel.proof import WorkbooksDiffer

ROWS = 40

Cells = list[Any]


def _read_rows(typed_rows: Path) -> list[Cells]:
    return [list(row.values()) for batch in content.read_batches(typed_rows) for row in batch.to_pylist()]


def _write_book(path: Path, rows: list[Cells]) -> Path:
    book = Workbook(str(path))
    sheet, moments = book.add_worksheet(), book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
    for place, row in enumerate([list(content.COLUMNS), *rows]):
        for column, cell in enumerate(row):
            is_moment = place > 0 and content.COLUMNS[column] == "ordered_at" and not isinstance(cell, str)
            sheet.write(place, column, cell, moments if is_moment else None)
    book.close()
    return path


@pytest.fixture
def typed_rows(tmp_path: Path) -> Path:
    """What the peers are given."""
    content.write_typed(ROWS, tmp_path / "typed")
    return tmp_path / "typed"


def test_a_book_with_every_cell_counts_in_one_file_or_in_several(tmp_path: Path, typed_rows: Path) -> None:
    """Each book of several has the heads, and the rows go on."""
    rows = _read_rows(typed_rows)

    proof.require_equal([_write_book(tmp_path / "a.xlsx", rows)], typed_rows, heads=1)
    parts = [_write_book(tmp_path / "b.xlsx", rows[:30]), _write_book(tmp_path / "c.xlsx", rows[30:])]
    proof.require_equal(parts, typed_rows, heads=1)


def _change_cell(name: str, value: object) -> Callable[[list[Cells]], list[Cells]]:
    def replace_cell(rows: list[Cells]) -> list[Cells]:
        rows[7][content.COLUMNS.index(name)] = value
        return rows

    return replace_cell


@pytest.mark.parametrize(
    "plant",
    [
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[-1]],
        lambda rows: [*rows[:5], rows[6], rows[5], *rows[7:]],
        _change_cell("order_no", 70798504110008001),
        _change_cell("amount", 12.345),
        _change_cell("id", "1000007"),
        _change_cell("paid", 1),
        _change_cell("ordered_at", "2020-01-01 07:40:19"),
        _change_cell("note", "a note of somebody else"),
    ],
)
def test_a_planted_fault_is_found(
    tmp_path: Path, typed_rows: Path, plant: Callable[[list[Cells]], list[Cells]]
) -> None:
    """A row lost, doubled or out of place, another value, or one of another type: such a book does not count."""
    with pytest.raises(WorkbooksDiffer):
        proof.require_equal([_write_book(tmp_path / "a.xlsx", plant(_read_rows(typed_rows)))], typed_rows, heads=1)


def test_books_with_the_same_parts_have_one_fingerprint(tmp_path: Path, typed_rows: Path) -> None:
    """A proved book's twin need not be read again; one cell more or less makes another fingerprint."""
    rows = _read_rows(typed_rows)
    first, twin, other = (
        proof.fingerprint(_write_book(tmp_path / name, cells))
        for name, cells in (("a.xlsx", rows), ("b.xlsx", rows), ("c.xlsx", rows[1:]))
    )

    assert first == twin
    assert first != other


def test_figures_hold_only_when_they_are_reached() -> None:
    """Ratios are of medians of processor time, and say at a million rows whether the issue's figure was reached."""
    found = {each.name: each for each in figures.figures(_build_results(1_000_000))}

    ratio = found["ours ÷ xlsxwriter, 1,000,000 rows"]
    assert (round(ratio.value, 2), ratio.reach, ratio.holds) == (35.0, "≥ 30", True)
    assert found["ours ÷ rustpy-xlsxwriter, 1,000,000 rows"].holds is False
    assert found["ours ÷ polars, 1,000,000 rows"].holds is None
    assert found["ours on two cores ÷ on one, 1,000,000 rows"].holds is True
    assert found["file size, ours ÷ jetxl, 1,000,000 rows"].holds is False
    assert found["peak memory of ours, 1,000,000 rows"].holds is True


def test_other_sizes_report_figures_without_a_reach() -> None:
    """The issue names one ratio at another size; the rest is reported only."""
    named = {each.name: each.holds for each in figures.figures(_build_results(100_000)) if each.reach}
    assert named == {"ours ÷ jetxl, 100,000 rows": False}


def _build_results(rows: int) -> figures.Results:
    seconds = {"ours": [2.0, 2.0, 50.0], "ours, two cores": [1.1], "jetxl": [1.9], "polars": [70.0]}
    seconds |= {"xlsxwriter": [70.0], "rustpy-xlsxwriter": [7.5]}
    size = {"jetxl": 90.0}
    return {
        rows: {
            name: [WriterRun(each, each, 250.0, size.get(name, 91.0)) for each in taken]
            for name, taken in seconds.items()
        }
    }
