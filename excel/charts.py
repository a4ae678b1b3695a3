"""Charts: native ones over columns of the body, right of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xlsxwriter import Workbook
from xlsxwriter.worksheet import Worksheet

from excel import safe
from excel.layout import Placed
from excel.template.models import Chart, ChartKind

WIDTH_PIXELS: Final = 640
HEIGHT_PIXELS: Final = 320
GAP_PIXELS: Final = 20
POINTS_MAX: Final = 32_000
"""Of one series; with more, programs that open the book crawl. A chart that shows fewer than all rows says so."""
TITLE_CHARACTERS_MAX: Final = 255

_ROW_PIXELS = 20
_POINT_PIXELS = 4 / 3
_MOVES_BUT_KEEPS_ITS_SIZE = 2


def add(workbook: Workbook, worksheet: Worksheet, tables: Sequence[Placed], heights: Mapping[int, float]) -> bool:
    """Add the charts of all tables of a sheet, none over another, and say whether there is any.

    Args:
        heights: Of the rows outside the bodies, in points.
    """
    column = max((table.frame.last_column for table in tables), default=0) + 2
    bottom = 0
    for table in tables:
        row = table.frame.first_head_row
        top = _top(row, tables, heights)
        for wanted in table.frame.charts:
            chart = _chart(workbook, worksheet.name, table, wanted)
            if chart is not None:
                start = max(top, bottom)
                place = {"y_offset": start - top, "object_position": _MOVES_BUT_KEEPS_ITS_SIZE}
                worksheet.insert_chart(row, column, chart, place)
                bottom = start + HEIGHT_PIXELS + GAP_PIXELS
    if bottom:
        _tell_heights(worksheet, tables, bottom)
    return bottom > 0


def _chart(workbook: Workbook, sheet: str, table: Placed, wanted: Chart) -> Any:
    """The chart, or None if there is nothing to show."""
    columns = [column for key in wanted.values if (column := _column(table, key)) is not None]
    if not columns or not table.body_rows:
        return None
    chart = workbook.add_chart({"type": wanted.kind.value})
    for column in columns:
        chart.add_series(_series(sheet, table, wanted, column))
    title = _title(wanted, table.body_rows)
    if title is not None:
        # `set_title` would take a text such as "Q1!A1" for the address of a cell.
        chart.set_title({"name": ""})
        chart.title.name = title
    if len(columns) == 1 and wanted.kind is not ChartKind.PIE:
        chart.set_legend({"none": True})
    else:
        chart.set_legend({"position": "bottom"})
    chart.set_size({"width": WIDTH_PIXELS, "height": HEIGHT_PIXELS})
    return chart


def _series(sheet: str, table: Placed, wanted: Chart, column: int) -> dict[str, Any]:
    """A column of the body. Its cells are left for the program to read: xlsxwriter does not know them."""
    frame = table.frame
    first, last = frame.first_body_row, frame.first_body_row + min(table.body_rows, POINTS_MAX) - 1
    head = next(area for area in frame.above if area.column == column and area.last_row == first - 1)
    series: dict[str, Any] = {
        "values": [sheet, first, column, last, column],
        "values_data": [],
        "name": [sheet, head.row, head.column],
        "name_data": [head.text],
    }
    category = _category(table, wanted)
    if category is not None:
        series["categories"] = [sheet, first, category, last, category]
        series["categories_data"] = []
    if wanted.kind is ChartKind.PIE:
        series["data_labels"] = {"percentage": True}
    return series


def _category(table: Placed, wanted: Chart) -> int | None:
    """The column of categories: the one that is named, else the row heads next to the body."""
    if wanted.categories is not None:
        return _column(table, wanted.categories)
    return table.frame.row_depth - 1 if table.frame.row_depth else None


def _column(table: Placed, key: str) -> int | None:
    """Where the data of a key stand; None if there are none."""
    places = (place for place, column in enumerate(table.frame.columns) if column.key == key)
    place = next(places, None)
    return None if place is None else table.frame.first_body_column + place


def _title(wanted: Chart, rows: int) -> str | None:
    shown = f"first {POINTS_MAX:,} rows" if rows > POINTS_MAX else ""
    title = safe.bounded(safe.text(wanted.title or ""), TITLE_CHARACTERS_MAX)[0]
    if title and shown:
        return f"{title} ({shown})"
    return title or shown or None


def _top(row: int, tables: Sequence[Placed], heights: Mapping[int, float]) -> int:
    """Where a row begins, in pixels."""
    pixels = _ROW_PIXELS * row
    pixels += sum(_pixels(height) - _ROW_PIXELS for place, height in heights.items() if place < row)
    for table in tables:
        if table.frame.first_body_row < row:
            own = _own_pixels(table)
            pixels += table.body_rows * (own - _ROW_PIXELS)
            pixels += _pixels(table.grown.points) - table.grown.count * own
    return pixels


def _own_pixels(table: Placed) -> int:
    """The height of a row of data that has not grown."""
    height = table.frame.body_height
    return _ROW_PIXELS if height is None else _pixels(height)


def _tell_heights(worksheet: Worksheet, tables: Sequence[Placed], bottom: int) -> None:
    """Tell xlsxwriter how high rows are that it does not write, or charts beside them would be drawn out."""
    for table in tables:
        if table.frame.body_height is not None:
            pixels = max(1, _own_pixels(table))
            first = table.frame.first_body_row
            for row in range(first, first + min(table.body_rows, bottom // pixels + 1)):
                worksheet.row_sizes[row] = [pixels, False]
        for row, points in table.grown.first.items():
            worksheet.row_sizes[row] = [_pixels(points), False]


def _pixels(points: float) -> int:
    return int(points * _POINT_PIXELS + 0.5)
