"""Frame: everything of a sheet but its data, drawn by xlsxwriter.

The rows of the body are left out: they are written beside xlsxwriter and set between what stands above and below. The
row heads stand in these rows, so here only their cells are merged.

Texts are always written as texts, never by a method that guesses: a title may begin with `=` or be an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from xlsxwriter import Workbook
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from excel import charts, layout, safe
from excel.html import Run
from excel.layout import Area, Placed
from excel.stylesheet import StyleSheet
from excel.template.style import Style

FROZEN_POINTS_MAX: Final = 240
FROZEN_CHARACTERS_MAX: Final = 60
"""More than this in sight for ever would leave no room to scroll in on a small screen."""

FONT_SIZE: Final = 11
PORTRAIT_CHARACTERS: Final = 95
"""What A4 shows side by side, upright, at full size."""
SHRINKABLE_CHARACTERS: Final = 240
"""More than this on the width of one page would be too small to read."""
PROPERTY_CHARACTERS_MAX: Final = 255

_A4 = 9
_PAGE_NUMBERS = "&C&P / &N"
_ESCAPE_LIKE = re.compile("(?<=_)(?=x[0-9A-Fa-f]{4}_)")


def draw(
    workbook: Workbook,
    worksheet: Worksheet,
    tables: Sequence[Placed],
    styles: StyleSheet,
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
    column_widths = sheet_widths(tables)
    for column, width in enumerate(column_widths):
        worksheet.set_column(column, column, width)
    heights: dict[int, float] = {}
    for table in tables:
        heights |= layout.heights(table.areas, column_widths)
        for area in table.areas:
            _draw(worksheet, area, styles.format(area.style))
        for area in table.row_heads:
            if area.rows * area.columns > 1:
                top = table.frame.first_body_row
                worksheet.merge.append([top + area.row, area.column, top + area.last_row, area.last_column])
    for row, height in heights.items():
        worksheet.set_row(row, height)
    if len(tables) == 1:
        _fix_heads(worksheet, tables[0], heights, column_widths, freeze=freeze, filtered=filtered)
    charted = charts.add(workbook, worksheet, tables, heights)
    _set_up_print(worksheet, column_widths, charted=charted)


def describe(workbook: Workbook, title: str | None) -> None:
    """Give the document its properties; when it was made, xlsxwriter says."""
    if title:
        workbook.set_properties({"title": safe.bounded(safe.text(title), PROPERTY_CHARACTERS_MAX)[0]})


def sheet_widths(tables: Sequence[Placed]) -> list[float]:
    """The width of each column of a sheet: of several tables, the widest."""
    count = max((table.frame.last_column + 1 for table in tables), default=0)
    found = [0.0] * count
    for table in tables:
        for column, width in enumerate(table.column_widths):
            found[column] = max(found[column], width)
    return found


def _draw(worksheet: Worksheet, area: Area, style: Format) -> None:
    if area.rows * area.columns > 1:
        worksheet.merge_range(area.row, area.column, area.last_row, area.last_column, "", style)
    fragments = list(_fragments(area.runs, area.style))
    if not fragments:
        worksheet.write_blank(area.row, area.column, None, style)
    elif len(fragments) == 1:
        worksheet.write_string(area.row, area.column, fragments[0][1], style)
    else:
        pieces = [piece for fragment in fragments for piece in fragment]
        worksheet.write_rich_string(area.row, area.column, *pieces, style)


def _fragments(runs: Sequence[Run], style: Style) -> Iterator[tuple[Format, str]]:
    """Texts with their fonts: one alone is a plain text in the font of the cell, more are rich text.

    xlsxwriter escapes rich text twice: what looks like an escape is parted within, and no control character is left.
    """
    parts = [(run, text) for run in runs for text in _ESCAPE_LIKE.split(run.text) if text]
    if len(parts) == 1 and not _is_plain(*parts[0]):
        run, text = parts[0]
        parts = [(run, text[:1]), (run, text[1:])] if text[1:] else parts
    for run, text in parts:
        yield _font(run, style), text if len(parts) == 1 else safe.printable(text)


def _is_plain(run: Run, text: str) -> bool:
    """Whether the font of the cell will do, and xlsxwriter will not take the text for the XML of rich text."""
    return run == Run(run.text) and not (text.startswith("<r>") and text.endswith("</r>"))


def _font(run: Run, style: Style) -> Format:
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


def _fix_heads(
    worksheet: Worksheet,
    table: Placed,
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


def _set_up_print(worksheet: Worksheet, column_widths: Sequence[float], *, charted: bool) -> None:
    """A4, centred, as many columns on a page as can be read, pages numbered.

    No print area: all that is used is printed, and LibreOffice shows booleans as numbers where there is one.
    """
    worksheet.set_paper(_A4)
    worksheet.center_horizontally()
    worksheet.set_footer(_PAGE_NUMBERS)
    if sum(column_widths) > PORTRAIT_CHARACTERS or charted:
        worksheet.set_landscape()
    if sum(column_widths) <= SHRINKABLE_CHARACTERS:
        worksheet.fit_to_pages(1, 0)
