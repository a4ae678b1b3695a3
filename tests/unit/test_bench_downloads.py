"""The bench of downloads: what counts as the same rows, and what its figures say."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from bench.downloads import figures, proof
from bench.downloads.contenders import ExportRun
from bench.downloads.proof import ExportContent, ExportsDiffer
from sims import rows as sample

SEED = 7
ROWS = 1_500

Cells = list[object]


def _build_cells(start: int = 0, stop: int = ROWS) -> list[Cells]:
    return [list(sample.row(SEED, number).values()) for number in range(start, stop)]


def _write(path: Path, rows: Sequence[Cells], write: Callable[[object], object] = str, lead: str = "") -> Path:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*sample.row(SEED, 0), "_their_own"])
    for cells in rows:
        writer.writerow([*("" if cell is None else write(cell) for cell in cells), "x"])
    path.write_text(lead + text.getvalue(), encoding="utf-8", newline="")
    return path


def _shorten_number(cell: object) -> object:
    return float(cell) if isinstance(cell, Decimal) else str(cell).lower() if isinstance(cell, bool) else cell


@pytest.mark.parametrize(("write", "lead"), [(str, ""), (str, "\ufeff"), (_shorten_number, "")])
def test_other_ways_to_write_a_cell_are_equal(tmp_path: Path, write: Callable[[object], object], lead: str) -> None:
    """`5.0` is `5.00`, `True` is `true`, and neither a byte order mark nor a column of the writer's own matters."""
    proof.require_equal([_write(tmp_path / "a.csv", _build_cells(), write, lead)], ExportContent(ROWS, SEED))


def test_files_count_in_the_order_of_their_rows(tmp_path: Path) -> None:
    """Names that say nothing of the order do no harm."""
    files = [_write(tmp_path / "a.csv", _build_cells(700)), _write(tmp_path / "b.csv", _build_cells(0, 700))]
    proof.require_equal(files, ExportContent(ROWS, SEED))


def _lose_row(rows: list[Cells]) -> list[Cells]:
    return rows[:800] + rows[801:]


def _double_row(rows: list[Cells]) -> list[Cells]:
    return rows[:800] + rows[799:]


def _swap_rows(rows: list[Cells]) -> list[Cells]:
    return [*rows[:800], rows[801], rows[800], *rows[802:]]


def _change_cell(name: str, value: object) -> Callable[[list[Cells]], list[Cells]]:
    column = list(sample.row(SEED, 0)).index(name)

    def replace_cell(rows: list[Cells]) -> list[Cells]:
        rows[800][column] = value
        return rows

    return replace_cell


@pytest.mark.parametrize(
    "plant",
    [
        _lose_row,
        _double_row,
        _swap_rows,
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[-1]],
        _change_cell("amount", "12.345"),
        _change_cell("amount", "about 12"),
        _change_cell("order_no", "7079850411000800"),
        _change_cell("customer", ""),
        _change_cell("note", "a note of somebody else"),
        _change_cell("ordered_at", "2020-01-01 07:40:19+00:00"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, plant: Callable[[list[Cells]], list[Cells]]) -> None:
    """A row lost, doubled or out of place, and a cell with another value: such a run does not count."""
    with pytest.raises(ExportsDiffer):
        proof.require_equal([_write(tmp_path / "a.csv", plant(_build_cells()))], ExportContent(ROWS, SEED))


def test_ratios_are_of_medians_and_hold_only_when_reached() -> None:
    """One run that was disturbed decides nothing; where the issue names a ratio, it says whether it was reached."""
    found = {
        each.name: each
        for each in figures.figures(_build_results(1_000_000, ours=[2.0, 2.0, 50.0], floor=[1.0, 1.8, 9.0]))
    }
    floor = found["ours ÷ floor, 1,000,000 rows"]
    assert (round(floor.value, 3), floor.reach, floor.holds) == (0.9, "≥ 0.85", True)
    assert found["ours ÷ dlt, 1,000,000 rows"].holds is False


def test_other_sizes_report_ratios_without_a_reach() -> None:
    """What the issue does not name is reported only."""
    found = {each.name: each for each in figures.figures(_build_results(10_000, ours=[0.5], floor=[0.1]))}
    assert (found["ours ÷ floor, 10,000 rows"].reach, found["ours ÷ floor, 10,000 rows"].holds) == ("", None)
    assert found["ready after the request, 10,000 rows"].holds is True


def _build_results(rows: int, *, ours: list[float], floor: list[float]) -> figures.Results:
    seconds = {"ours": ours, "floor": floor, "pandas script": [5.0], "dlt": [10.0]}
    runs = {
        name: [ExportRun(each, each, 100.0, [], {"source": 0.1}) for each in taken] for name, taken in seconds.items()
    }
    return {rows: runs}
