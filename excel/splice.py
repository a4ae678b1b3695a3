"""Splice: bodies set into the XML of a sheet that xlsxwriter drew around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xlsxwriter.utility import xl_cell_to_rowcol, xl_range

from excel.archive import Piece, Spool, pressed

_ROW = re.compile(rb'<row r="(\d+)"')
_DIMENSION = re.compile(rb'<dimension ref="([A-Z]+[0-9]+)(?::([A-Z]+[0-9]+))?"/>')
_NO_ROWS = b"<sheetData/>"
_ROWS_END = b"</sheetData>"


@dataclass(frozen=True)
class Inset:
    """A body: its rows, which xlsxwriter left out, and where they begin."""

    first_row: int
    rows: int
    last_column: int
    content: Spool


def spliced(sheet: bytes, insets: Sequence[Inset]) -> list[Piece | Spool]:
    """The parts of a sheet's entry, from what xlsxwriter wrote and the bodies from top to bottom."""
    sheet = _with_dimension(sheet.replace(_NO_ROWS, b"<sheetData></sheetData>"), insets)
    starts = [(int(row[1]) - 1, row.start()) for row in _ROW.finditer(sheet)]
    starts.append((2**20, sheet.index(_ROWS_END)))
    parts: list[Piece | Spool] = []
    done = 0
    for inset in insets:
        cut = next(start for row, start in starts if row >= inset.first_row)
        parts += [pressed(sheet[done:cut]), inset.content]
        done = cut
    return [*parts, pressed(sheet[done:], last=True)]


def _with_dimension(sheet: bytes, insets: Sequence[Inset]) -> bytes:
    """Readers trust a sheet that says how large it is."""
    found = _DIMENSION.search(sheet)
    if found is None:
        raise ValueError("xlsxwriter wrote a sheet without dimension; its version is not the one that is pinned.")
    row, column = xl_cell_to_rowcol((found[2] or found[1]).decode())
    for inset in insets:
        if inset.rows:
            row, column = max(row, inset.first_row + inset.rows - 1), max(column, inset.last_column)
    reference = f'<dimension ref="{xl_range(0, 0, row, column)}"/>'
    return sheet[: found.start()] + reference.encode() + sheet[found.end() :]
