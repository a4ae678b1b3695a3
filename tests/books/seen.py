"""What two readers of others see in a book: openpyxl looks and places, python-calamine values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from openpyxl import load_workbook
from openpyxl.cell.rich_text import CellRichText, TextBlock
from python_calamine import CalamineWorkbook


@dataclass(frozen=True)
class Seen:
    """One sheet."""

    values: list[list[Any]]
    cells: dict[str, tuple[Any, ...]]
    """Value and look of each."""
    links: dict[str, str | None]
    merged: list[str]
    widths: dict[int, float]
    heights: dict[int, int]
    frozen: str | None
    filtered: str | None


def sheets(path: Path) -> dict[str, Seen]:
    """Every sheet of a book."""
    book = load_workbook(path, rich_text=True)
    values = CalamineWorkbook.from_path(str(path))
    return {sheet.title: _sheet(sheet, values) for sheet in book.worksheets}


def _sheet(sheet: Any, values: CalamineWorkbook) -> Seen:
    rows = values.get_sheet_by_name(sheet.title).to_python(skip_empty_area=False)
    return Seen(
        values=_without_empty_ends([[_plain(cell) for cell in row] for row in rows]),
        cells={cell.coordinate: (_text(cell), *_look(cell)) for row in sheet.iter_rows() for cell in row},
        links={cell.coordinate: cell.hyperlink.target for row in sheet.iter_rows() for cell in row if cell.hyperlink},
        merged=sorted(map(str, sheet.merged_cells.ranges)),
        widths={
            column: round(found.width, 3)
            for found in sheet.column_dimensions.values()
            for column in range(found.min, found.max + 1)
        },
        heights={row: _pixels(found.height) for row, found in sheet.row_dimensions.items() if found.height is not None},
        frozen=sheet.freeze_panes,
        filtered=sheet.auto_filter.ref,
    )


def _without_empty_ends(rows: list[list[Any]]) -> list[list[Any]]:
    """Empty texts are as good as no cells, and readers differ in which of them they count."""
    while rows and not any(cell != "" for cell in rows[-1]):
        rows.pop()
    return rows


def _pixels(points: float) -> int:
    """What a screen shows: xlsxwriter rounds to it, others leave it to Excel."""
    return int(points * 4 / 3 + 0.5)


def _plain(cell: Any) -> Any:
    """A cell as it can be compared: for Python True is 1, and two writers may differ in a moment's last digit."""
    if isinstance(cell, bool):
        return f"boolean {cell}"
    if isinstance(cell, int):
        return float(cell)
    if isinstance(cell, datetime):
        return (cell + timedelta(microseconds=500)).replace(microsecond=0)
    if isinstance(cell, date):
        return datetime.combine(cell, time())
    return cell


def _text(cell: Any) -> Any:
    value = cell.value
    if isinstance(value, CellRichText):
        blocks = [part if isinstance(part, TextBlock) else TextBlock(cell.font, part) for part in value]
        return _merge_equal_runs([(_run(block, cell), block.text) for block in blocks])
    if value and isinstance(value, str):
        return _merge_equal_runs([(_font(cell.font)[:4], value)])
    return _plain(value) or None


def _merge_equal_runs(runs: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Neighbours of one look are one run: how often a text is divided does not matter."""
    found: list[tuple[Any, str]] = []
    for look, text in runs:
        if found and found[-1][0] == look:
            found[-1] = (look, found[-1][1] + text)
        else:
            found.append((look, text))
    return found


def _run(block: TextBlock, cell: Any) -> tuple[Any, ...]:
    font = block.font
    return bool(font.b), bool(font.i), font.u, _color(font.color)


def _look(cell: Any) -> tuple[Any, ...]:
    alignment, border = cell.alignment, cell.border
    lines = tuple(getattr(border, side).style for side in ("left", "right", "top", "bottom"))
    fill = _color(cell.fill.fgColor) if cell.fill.fill_type else None
    place = (alignment.horizontal, alignment.vertical, bool(alignment.wrap_text))
    if cell.value is None or cell.value == "":
        # How it would show a value does not matter.
        return fill, lines, place
    return *_font(cell.font), cell.font.sz, cell.number_format, fill, lines, place


def _font(font: Any) -> tuple[Any, ...]:
    return bool(font.b), bool(font.i), font.u, _color(font.color)


def _color(color: Any) -> str | None:
    return color.rgb if color is not None and color.type == "rgb" else None
