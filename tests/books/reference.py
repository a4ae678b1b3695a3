"""A writer of books by xlsxwriter alone, cell by cell, from what the documents say; it shares no code with ours.

It takes the random books of `cases`, and is slow and plain on purpose: what it draws is what ours must draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlsxwriter import Workbook
from xlsxwriter.worksheet import Worksheet

from tests.books.cases import Case, Piece
from tests.books.placing import Box, Look, Placed
from tests.books.values import Formula, Url

FROZEN_POINTS_MAX = 240
FROZEN_CHARACTERS_MAX = 60
GAP_ROWS = 3


def write(case: Case, path: Path) -> None:
    """Draw the whole book."""
    book = Workbook(str(path))
    for name, tables in _sheets(case):
        _Sheet(book, name).draw(case, tables)
    book.close()


def _sheets(case: Case) -> Iterator[tuple[str, list[Placed]]]:
    """The sheets with their tables: every table on its own, or all on that of the first."""
    stacked: list[Placed] = []
    for number, table in enumerate(case.tables):
        name = table.drawing["sheet"] or f"Sheet{number + 1}"
        if case.book["multi"] == "tab":
            yield name, [Placed(case, table, 0)]
            continue
        stacked.append(Placed(case, table, stacked[-1].end + GAP_ROWS if stacked else 0))
    if stacked:
        yield case.tables[0].drawing["sheet"] or "Sheet1", stacked


class _Sheet:
    def __init__(self, book: Workbook, name: str) -> None:
        self._book = book
        self._sheet: Worksheet = book.add_worksheet(name)

    def draw(self, case: Case, tables: Sequence[Placed]) -> None:
        """Everything of a sheet."""
        widths: dict[int, float] = {}
        for table in tables:
            for column, width in table.widths().items():
                widths[column] = max(widths.get(column, 0), width)
        for column, width in widths.items():
            self._sheet.set_column(column, column, width)
        for table in tables:
            self._table(table, widths)
        if len(tables) == 1 and tables[0].body_top > tables[0].heads_top:
            self._fix(case, tables[0], widths)

    def _table(self, table: Placed, widths: Mapping[int, float]) -> None:
        for box in (*table.boxes, *table.row_heads):
            self._box(box)
        for row, column, value, look in table.cells():
            self._cell(row, column, value, look)
        for row, height in table.heights(widths).items():
            self._sheet.set_row(row, height)

    def _fix(self, case: Case, table: Placed, widths: Mapping[int, float]) -> None:
        if case.book["freeze"]:
            heights = table.heights(widths)
            above = sum(heights[row] for row in range(table.body_top))
            left = sum(widths[column] for column in range(table.row_depth))
            row = table.body_top if above <= FROZEN_POINTS_MAX else 0
            column = table.row_depth if left <= FROZEN_CHARACTERS_MAX else 0
            if row or column:
                self._sheet.freeze_panes(row, column)
        if case.book["filter"] and not table.row_depth:
            self._sheet.autofilter(table.body_top - 1, 0, table.body_end - 1, len(table.leaves) - 1)

    def _box(self, box: Box) -> None:
        style = self._book.add_format(box.look)
        if (box.top, box.left) != (box.bottom, box.right):
            self._sheet.merge_range(box.top, box.left, box.bottom, box.right, "", style)
        match box.pieces:
            case ():
                self._sheet.write_blank(box.top, box.left, None, style)
            case (only,) if only == Piece(only.text):
                self._sheet.write_string(box.top, box.left, only.text, style)
            case pieces:
                self._rich(box.top, box.left, pieces, box.look)

    def _rich(self, row: int, column: int, pieces: Sequence[Piece], look: Look) -> None:
        # What is of one look all through is two pieces for xlsxwriter, which takes no single one for rich.
        if len(pieces) == 1:
            pieces = [_part(pieces[0], slice(0, 1)), _part(pieces[0], slice(1, None))]
        parts = [part for piece in pieces for part in (self._book.add_format(_font(piece, look)), piece.text)]
        self._sheet.write_rich_string(row, column, *parts, self._book.add_format(look))

    def _cell(self, row: int, column: int, value: Any, look: Look) -> None:
        style = self._book.add_format(look)
        write = self._sheet
        match value:
            case None | "":
                write.write_blank(row, column, None, style)
            case bool():
                write.write_boolean(row, column, value, style)
            case float():
                write.write_number(row, column, value, style)
            case tuple() if all(piece == Piece(piece.text) for piece in value):
                write.write_string(row, column, "".join(piece.text for piece in value), style)
            case tuple():
                self._rich(row, column, value, look)
            case Url():
                write.write_url(row, column, value, style, string=value)
            case Formula():
                write.write_formula(row, column, value, style, value="")
            case str():
                write.write_string(row, column, value, style)
            case _:
                write.write_datetime(row, column, value, style)


def _part(piece: Piece, part: slice) -> Piece:
    return Piece(piece.text[part], piece.bold, piece.italic, piece.underline, piece.color)


def _font(piece: Piece, look: Look) -> Look:
    font: Look = {"bold": piece.bold or look.get("bold", False), "italic": piece.italic}
    if piece.underline:
        font["underline"] = 1
    if color := f"#{piece.color}" if piece.color else look.get("font_color"):
        font["font_color"] = color
    return font
