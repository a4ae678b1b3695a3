"""Flat pages: if all rows have the same keys in the same order and no nesting, cells are located instead of parsed.

Nearly every page is flat. *Key marks* separate its cells: `,"name":`, and `},{"name":` before the first cell of a row.
In valid JSON a key mark is always a key, never a part of a text: a quote behind a comma or a brace is not escaped, so
it begins or ends a text, and none of these names can occur between two texts. It remains to check that exactly one cell
is between two key marks:

- each `":` ends a key mark, and the key marks follow each other as the columns do;
- a cell begins and ends with a character of a value, so neither spaces nor brackets are around it or in its place;
- all quotes belong to key marks and to cells that are texts, so no key is hidden by another spelling.

A page that passes is cut at its key marks, with a few vectorised passes over its bytes. Any other page is read cell by
cell, which is always right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import msgspec

# API, workflows and idle workers import this module, and must not load NumPy.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int64]
    Text = NDArray[np.uint8]

QUOTE, COLON, BACKSLASH, SPACE = b'":\\ '
_VALUE_ENDS = b'"0123456789el'
# A name with a comma or a colon could occur between two texts. One with escapes has several spellings.
_NO_KEY_MARK = re.compile(r'[,:\\"\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class CellGrid:
    """The cells of a flat page, row by row: cell n is `text[starts[n]:stops[n]]`, as JSON.

    One byte follows a cell, two the last cell of a row; they begin a key mark and may be overwritten.
    """

    text: Text
    columns: int
    starts: Places
    stops: Places
    escapes: Places
    """Positions of backslashes, none of which follows another."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.starts) // self.columns


@dataclass(frozen=True, slots=True)
class NestedRowsAndKeyCount:
    """Rows whose cells cannot be located: some row has other keys, or a cell more than one value."""

    data: bytes
    keys: int | None = None
    """Number of keys in it, including those within cells; None if they were not counted."""


class CellGridFinder:
    """Locates the cells of pages that have the given columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        key_marks = [b'%b"%b":' % (b"," if place else b"},{", name.encode()) for place, name in enumerate(columns)]
        self._key_marks = [] if any(map(_NO_KEY_MARK.search, columns)) else key_marks
        self._lengths = [len(each) for each in self._key_marks]

    def find_grid(self, data: bytes) -> CellGrid | NestedRowsAndKeyCount:
        """Return the cells of a list of rows if it is flat. It must be valid JSON."""
        if not self._key_marks:
            return NestedRowsAndKeyCount(data)
        found = self._locate_cells_or_count_keys(data)
        if not isinstance(found, CellGrid):
            found = self._locate_cells_or_count_keys(compact_json_and_escape_backslashes(data))
        return found if isinstance(found, CellGrid) else NestedRowsAndKeyCount(data, found)

    def _locate_cells_or_count_keys(self, data: bytes) -> CellGrid | int | None:
        """Return the cells, or the number of keys if they could be counted; both are exact for normalized JSON."""
        import numpy as np  # noqa: PLC0415

        if data[-2:] != b"}]":
            return None
        # With a comma at either end instead of a bracket, the first row has the same key mark as the others.
        text = np.frombuffer(bytearray(b"},%b," % data[1:-1]), np.uint8)
        escapes = np.flatnonzero(text == BACKSLASH)
        if (text[escapes + 1] == BACKSLASH).any():
            return None
        starts = 3 + np.flatnonzero((text[:-2] != BACKSLASH) & (text[1:-1] == QUOTE) & (text[2:] == COLON))
        rows, rest = divmod(len(starts), len(self._key_marks))
        if rest or not rows:
            return len(starts)
        mark_positions = (starts.reshape(rows, -1) - self._lengths).ravel()
        stops = np.append(mark_positions[1:], len(text) - 2)
        if not self._are_key_marks_in_place(text, mark_positions) or not _is_each_cell_one_value(
            text, starts, stops, escapes
        ):
            return len(starts)
        return CellGrid(text, len(self._key_marks), starts, stops, escapes)

    def _are_key_marks_in_place(self, text: Text, mark_positions: Places) -> bool:
        """Return whether all key marks are at their positions, the first of them at the very beginning."""
        import numpy as np  # noqa: PLC0415

        if mark_positions[0] != 0 or mark_positions.min() < 0:
            return False
        for column, mark in enumerate(self._key_marks):
            here = mark_positions[column :: len(self._key_marks)]
            words = np.ndarray(len(text) - len(mark) + 1, f"V{len(mark)}", text, strides=(1,))
            if words[here].tobytes() != mark * len(here):
                return False
        return True


def _is_each_cell_one_value(text: Text, starts: Places, stops: Places, escapes: Places) -> bool:
    """Return whether each start and stop enclose exactly one value."""
    import numpy as np  # noqa: PLC0415

    firsts = text[starts]
    if firsts.min() <= SPACE or not build_byte_table(_VALUE_ENDS)[text[stops - 1]].all():
        return False
    quotes = np.count_nonzero(text == QUOTE) - np.count_nonzero(text[escapes + 1] == QUOTE)
    return bool(quotes == 2 * (len(starts) + np.count_nonzero(firsts == QUOTE)))


@cache
def build_byte_table(members: bytes) -> NDArray[np.bool_]:
    """Return a table that says of each byte whether it is one of the members."""
    import numpy as np  # noqa: PLC0415

    return np.isin(np.arange(256), list(members))


def compact_json_and_escape_backslashes(data: bytes) -> bytes:
    """Return the same JSON without spaces, and without two backslashes in a row."""
    return msgspec.json.format(data, indent=-1).replace(rb"\\", rb"\u005c")
