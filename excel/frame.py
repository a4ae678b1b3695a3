"""Frame: everything of a sheet but its data, drawn by xlsxwriter, with the charts right of the tables.

The rows of the body are left out: they are written beside xlsxwriter and spliced in. The row heads are in these rows,
so here only their cells are merged.

Texts are always written as texts, never by a method that guesses: a title may begin with `=` or be an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from xlsxwriter import Workbook
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from excel.areas import MergedCellArea, TableFrameAndBodySize, compute_row_heights
from excel.columns import CellFormatRegistry
from excel.html import TextRun
from excel.template.models import CellStyle, ChartKind, ChartOfTemplate
from excel.texts import replace_control_characters, replace_invalid_characters, truncate_to_cell

FROZEN_POINTS_MAX: Final = 240
FROZEN_CHARACTERS_MAX: Final = 60
"""Larger frozen heads would leave no space to scroll in on a small screen."""

FONT_SIZE: Final = 11
PORTRAIT_CHARACTERS: Final = 95
"""Characters that A4 shows side by side in portrait at full size."""
SHRINKABLE_CHARACTERS: Final = 240
"""More characters on the width of one page would be too small to read."""
PROPERTY_CHARACTERS_MAX: Final = 255

_A4 = 9
_PAGE_NUMBERS = "&C&P / &N"
_ESCAPE_LIKE = re.compile("(?<=_)(?=x[0-9A-Fa-f]{4}_)")


def draw_frames_and_set_up_sheet(
    workbook: Workbook,
    worksheet: Worksheet,
    tables: Sequence[TableFrameAndBodySize],
    styles: CellFormatRegistry,
    *,
    freeze: bool = True,
    filtered: bool = True,
) -> None:
    """Draw the frames of all tables of a sheet, and set up the sheet.

    Args:
        tables: From top to bottom.
        freeze: Whether the heads stay in sight; of several tables, none does.
        filtered: Whether the heads have a filter; of several tables none has, nor has one with row heads, whose merged
            cells neither filter nor sort.
    """
    column_widths = compute_sheet_column_widths(tables)
    for column, width in enumerate(column_widths):
        worksheet.set_column(column, column, width)
    heights: dict[int, float] = {}
    for table in tables:
        heights |= compute_row_heights(table.areas, column_widths)
        for area in table.areas:
            _merge_and_write_area(worksheet, area, styles.get_or_add_format(area.style))
        for area in table.row_heads:
            if area.rows * area.columns > 1:
                top = table.frame.first_body_row
                worksheet.merge.append([top + area.row, area.column, top + area.last_row, area.last_column])
    for row, height in heights.items():
        worksheet.set_row(row, height)
    if len(tables) == 1:
        _freeze_and_filter_heads(worksheet, tables[0], heights, column_widths, freeze=freeze, filtered=filtered)
    charted = add_charts_and_check_if_any(workbook, worksheet, tables, heights)
    _set_up_printing(worksheet, column_widths, charted=charted)


def set_document_title(workbook: Workbook, title: str | None) -> None:
    """Set the document's title; xlsxwriter sets the time of creation."""
    if title:
        workbook.set_properties(
            {"title": truncate_to_cell(replace_invalid_characters(title), PROPERTY_CHARACTERS_MAX)[0]}
        )


def compute_sheet_column_widths(tables: Sequence[TableFrameAndBodySize]) -> list[float]:
    """Return the width of each column of a sheet: of several tables, the widest."""
    count = max((table.frame.last_column + 1 for table in tables), default=0)
    found = [0.0] * count
    for table in tables:
        for column, width in enumerate(table.column_widths):
            found[column] = max(found[column], width)
    return found


def _merge_and_write_area(worksheet: Worksheet, area: MergedCellArea, style: Format) -> None:
    if area.rows * area.columns > 1:
        worksheet.merge_range(area.row, area.column, area.last_row, area.last_column, "", style)
    fragments = list(_split_runs_into_formatted_texts(area.runs, area.style))
    if not fragments:
        worksheet.write_blank(area.row, area.column, None, style)
    elif len(fragments) == 1:
        worksheet.write_string(area.row, area.column, fragments[0][1], style)
    else:
        pieces = [piece for fragment in fragments for piece in fragment]
        worksheet.write_rich_string(area.row, area.column, *pieces, style)


def _split_runs_into_formatted_texts(runs: Sequence[TextRun], style: CellStyle) -> Iterator[tuple[Format, str]]:
    """Yield texts with their fonts: a single one is a plain text in the font of the cell, several are rich text.

    xlsxwriter escapes rich text twice: what looks like an escape is parted within, and no control character is left.
    """
    parts = [(run, text) for run in runs for text in _ESCAPE_LIKE.split(run.text) if text]
    if len(parts) == 1 and not _is_plain_text_safe_for_xlsxwriter(*parts[0]):
        run, text = parts[0]
        parts = [(run, text[:1]), (run, text[1:])] if text[1:] else parts
    for run, text in parts:
        yield _build_font(run, style), text if len(parts) == 1 else replace_control_characters(text)


def _is_plain_text_safe_for_xlsxwriter(run: TextRun, text: str) -> bool:
    """Return whether a text needs no font of its own and xlsxwriter does not take it for the XML of rich text."""
    return run == TextRun(run.text) and not (text.startswith("<r>") and text.endswith("</r>"))


def _build_font(run: TextRun, style: CellStyle) -> Format:
    properties: dict[str, Any] = {
        "font_size": style.size or FONT_SIZE,
        "bold": style.bold or run.bold,
        "italic": run.italic,
    }
    if run.underline:
        properties["underline"] = 1
    if color := run.color or style.color:
        properties["font_color"] = f"#{color}"
    return Format(properties)


def _freeze_and_filter_heads(
    worksheet: Worksheet,
    table: TableFrameAndBodySize,
    heights: dict[int, float],
    column_widths: Sequence[float],
    *,
    freeze: bool,
    filtered: bool,
) -> None:
    frame = table.frame
    if frame.first_head_row == frame.first_body_row:
        return
    if freeze:
        above = sum(heights[row] for row in range(frame.first_body_row))
        left = sum(column_widths[: frame.row_depth])
        rows = frame.first_body_row if above <= FROZEN_POINTS_MAX else 0
        columns = frame.row_depth if left <= FROZEN_CHARACTERS_MAX else 0
        if rows or columns:
            worksheet.freeze_panes(rows, columns)
    if filtered and not frame.row_depth:
        last_row = frame.first_body_row - 1 + table.body_rows
        worksheet.autofilter(frame.first_body_row - 1, 0, last_row, len(frame.columns) - 1)
    worksheet.repeat_rows(frame.first_head_row, frame.first_body_row - 1)
    if frame.row_depth:
        worksheet.repeat_columns(0, frame.row_depth - 1)


def _set_up_printing(worksheet: Worksheet, column_widths: Sequence[float], *, charted: bool) -> None:
    """Set A4, centred, with page numbers, and scaled to the width of a page where that can be read.

    No print area: all that is used is printed, and LibreOffice shows booleans as numbers where there is one.
    """
    worksheet.set_paper(_A4)
    worksheet.center_horizontally()
    worksheet.set_footer(_PAGE_NUMBERS)
    if sum(column_widths) > PORTRAIT_CHARACTERS or charted:
        worksheet.set_landscape()
    if sum(column_widths) <= SHRINKABLE_CHARACTERS:
        worksheet.fit_to_pages(1, 0)


CHART_WIDTH_PIXELS: Final = 640
CHART_HEIGHT_PIXELS: Final = 320
CHART_GAP_PIXELS: Final = 20
CHART_POINTS_MAX: Final = 32_000
"""Points of one series; more make spreadsheet programs slow. A chart that shows fewer than all rows says so."""
CHART_TITLE_CHARACTERS_MAX: Final = 255

_ROW_PIXELS = 20
_POINT_PIXELS = 4 / 3
_MOVES_BUT_KEEPS_ITS_SIZE = 2


def add_charts_and_check_if_any(
    workbook: Workbook, worksheet: Worksheet, tables: Sequence[TableFrameAndBodySize], heights: Mapping[int, float]
) -> bool:
    """Add the charts of all tables of a sheet without overlap, and return whether there is any.

    Args:
        heights: Of the rows outside the bodies, in points.
    """
    column = max((table.frame.last_column for table in tables), default=0) + 2
    bottom = 0
    for table in tables:
        row = table.frame.first_head_row
        top = _compute_top_pixels(row, tables, heights)
        for spec in table.frame.charts:
            chart = _build_chart(workbook, worksheet.name, table, spec)
            if chart is not None:
                start = max(top, bottom)
                place = {"y_offset": start - top, "object_position": _MOVES_BUT_KEEPS_ITS_SIZE}
                worksheet.insert_chart(row, column, chart, place)
                bottom = start + CHART_HEIGHT_PIXELS + CHART_GAP_PIXELS
    if bottom:
        _declare_body_heights_for_charts(worksheet, tables, bottom)
    return bottom > 0


def _build_chart(workbook: Workbook, sheet: str, table: TableFrameAndBodySize, spec: ChartOfTemplate) -> Any:
    """Return the chart, or None if there is nothing to show."""
    columns = [column for key in spec.values if (column := _find_sheet_column_of_key(table, key)) is not None]
    if not columns or not table.body_rows:
        return None
    chart = workbook.add_chart({"type": spec.kind.value})
    for column in columns:
        chart.add_series(_build_valueless_series(sheet, table, spec, column))
    title = _build_chart_title(spec, table.body_rows)
    if title is not None:
        # `set_title` would take a text such as "Q1!A1" for the address of a cell.
        chart.set_title({"name": ""})
        chart.title.name = title
    if len(columns) == 1 and spec.kind is not ChartKind.PIE:
        chart.set_legend({"none": True})
    else:
        chart.set_legend({"position": "bottom"})
    chart.set_size({"width": CHART_WIDTH_PIXELS, "height": CHART_HEIGHT_PIXELS})
    return chart


def _build_valueless_series(
    sheet: str, table: TableFrameAndBodySize, spec: ChartOfTemplate, column: int
) -> dict[str, Any]:
    """Return the series of a column of data. Its values are left out, as xlsxwriter does not know them."""
    frame = table.frame
    first, last = frame.first_body_row, frame.first_body_row + min(table.body_rows, CHART_POINTS_MAX) - 1
    head = next(area for area in frame.above if area.column == column and area.last_row == first - 1)
    series: dict[str, Any] = {
        "values": [sheet, first, column, last, column],
        "values_data": [],
        "name": [sheet, head.row, head.column],
        "name_data": [head.text],
    }
    category = _choose_category_column(table, spec)
    if category is not None:
        series["categories"] = [sheet, first, category, last, category]
        series["categories_data"] = []
    if spec.kind is ChartKind.PIE:
        series["data_labels"] = {"percentage": True}
    return series


def _choose_category_column(table: TableFrameAndBodySize, spec: ChartOfTemplate) -> int | None:
    """Return the column of categories: the one that is named, else the row heads next to the body."""
    if spec.categories is not None:
        return _find_sheet_column_of_key(table, spec.categories)
    return table.frame.row_depth - 1 if table.frame.row_depth else None


def _find_sheet_column_of_key(table: TableFrameAndBodySize, key: str) -> int | None:
    """Return the sheet column of a key; None if there is none."""
    places = (place for place, column in enumerate(table.frame.columns) if column.key == key)
    place = next(places, None)
    return None if place is None else table.frame.first_body_column + place


def _build_chart_title(spec: ChartOfTemplate, rows: int) -> str | None:
    shown = f"first {CHART_POINTS_MAX:,} rows" if rows > CHART_POINTS_MAX else ""
    title = truncate_to_cell(replace_invalid_characters(spec.title or ""), CHART_TITLE_CHARACTERS_MAX)[0]
    if title and shown:
        return f"{title} ({shown})"
    return title or shown or None


def _compute_top_pixels(row: int, tables: Sequence[TableFrameAndBodySize], heights: Mapping[int, float]) -> int:
    """Return the top of a row, in pixels."""
    pixels = _ROW_PIXELS * row
    pixels += sum(_to_pixels(height) - _ROW_PIXELS for place, height in heights.items() if place < row)
    for table in tables:
        if table.frame.first_body_row < row:
            own = _compute_body_row_pixels(table)
            pixels += table.body_rows * (own - _ROW_PIXELS)
            pixels += _to_pixels(table.grown.points) - table.grown.count * own
    return pixels


def _compute_body_row_pixels(table: TableFrameAndBodySize) -> int:
    """Return the height of a row of data that has not grown, in pixels."""
    height = table.frame.requested_body_row_height
    return _ROW_PIXELS if height is None else _to_pixels(height)


def _declare_body_heights_for_charts(
    worksheet: Worksheet, tables: Sequence[TableFrameAndBodySize], bottom_pixels: int
) -> None:
    """Give xlsxwriter the heights of rows that it does not write, or charts beside them would be stretched."""
    for table in tables:
        if table.frame.requested_body_row_height is not None:
            pixels = max(1, _compute_body_row_pixels(table))
            first = table.frame.first_body_row
            for row in range(first, first + min(table.body_rows, bottom_pixels // pixels + 1)):
                worksheet.row_sizes[row] = [pixels, False]
        for row, points in table.grown.first.items():
            worksheet.row_sizes[row] = [_to_pixels(points), False]


def _to_pixels(points: float) -> int:
    return int(points * _POINT_PIXELS + 0.5)
