"""CSV: the JSON cells of a page become final bytes, exact to the last digit and safe to open in a spreadsheet.

A JSON text without escapes is already a quoted CSV field, and a number its own text. So a page is joined as it is, and
what differs is mended in the joined text, many cells at a time. Every cell is followed by a byte that JSON text cannot
hold, which makes the ends of cells visible; it goes at last.

GB18030 has a code for every character of Unicode, so no encoding replaces or drops any, and no byte of a longer code is
a quote, a comma or a line end. A program that reads such a file as GBK (code page 936) shows the characters wrong that
GBK lacks, and only those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from domain.downloads.flat import QUOTE, CellGrid, Places, Text
from domain.downloads.models import TextEncoding

CONTENT_TYPE = "text/csv; charset=utf-8"
BOM = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
# A spreadsheet takes a text that begins with one of these for a formula (OWASP "CSV injection", ASVS 1.2.10).
_FORMULA_STARTS = frozenset("=+-@\t\r\n\0")
# The rest of them JSON text writes as escapes.
FORMULA_SIGNS = (b"=", b"+", b"-", b"@")
_EDGE = b"\x1f"
_CELL_END = _EDGE + b","
_ROW_END = _EDGE + LINE_END
_NULL = b"null"
# Which bytes are such signs.
_IS_SIGN = np.isin(np.arange(256), list(b"".join(FORMULA_SIGNS)))


class CsvSink:
    """Pages as CSV, which are final bytes."""

    extension = "csv"
    is_rendered = False

    def __init__(self, encoding: TextEncoding, guard_formulas: bool) -> None:
        self._encoding = encoding
        self._guard = guard_formulas
        self.content_type = content_type_of(encoding)

    def encode_head(self, columns: Sequence[str]) -> bytes:
        """The byte order mark if the encoding has one, and the line of column heads."""
        return encode_head(columns, self._encoding, guard=self._guard)

    def encode_page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """One line a row."""
        return encode_rows(rows, self._encoding, guard=self._guard)

    def encode_grid(self, grid: CellGrid, places: Sequence[int | None]) -> bytes:
        """One line a row, of all keys in their order: nothing selects for CSV."""
        # Workflows and the door import this module, and must not pay for Arrow.

        return encode_grid(grid, self._encoding, guard=self._guard)


def content_type_of(encoding: TextEncoding) -> str:
    """What a file in this encoding is served as."""
    return "text/csv; charset=gb18030" if encoding is TextEncoding.GB18030 else CONTENT_TYPE


def encode_head(
    columns: Sequence[str], encoding: TextEncoding = TextEncoding.UTF_8_BOM, *, guard: bool = True
) -> bytes:
    """The byte order mark, if the encoding has one, and the line of column heads.

    It is never empty, as no upload can be of nothing: where an empty source names no columns either, the mark stands
    alone, or else an empty line.
    """
    mark = BOM if encoding is TextEncoding.UTF_8_BOM else b""
    if mark and not columns:
        return mark
    return (
        mark + encode_text(b",".join(_quote(_guard(name) if guard else name) for name in columns), encoding) + LINE_END
    )


def encode_rows(
    rows: Iterable[Sequence[msgspec.Raw | bytes]],
    encoding: TextEncoding = TextEncoding.UTF_8_BOM,
    *,
    guard: bool = True,
) -> bytes:
    """All rows of a page, each ended by CR LF."""
    cells = list(rows)
    if not cells:
        return b""
    # Of one column alone nothing would be an empty line, which many readers pass over.
    nothing = b'""' if len(cells[0]) == 1 else b""
    # A text ends in a quote and a nested value in a bracket: this can only be the literal.
    text = _ROW_END.join([*map(_CELL_END.join, cells), b""]).replace(_NULL + _EDGE, nothing + _EDGE)
    # Asked once for the page, because most pages have none.
    signs = [sign for sign in FORMULA_SIGNS if guard and sign in text and b'"' + sign in text]
    pieces, done = [], 0
    for start in sorted({*_find_cells_with_escapes(text), *_find_nested_cells(text)}):
        end = text.index(_EDGE, start)
        pieces += [_encode_plain(text[done:start], signs), _encode_field(text[start:end], guard)]
        done = end
    pieces.append(_encode_plain(text[done:], signs))
    return encode_text(b"".join(pieces), encoding)


def encode_text(text: bytes, encoding: TextEncoding) -> bytes:
    """UTF-8 in the encoding of the file."""
    return text.decode().encode("gb18030") if encoding is TextEncoding.GB18030 else text


def _find_cells_with_escapes(text: bytes) -> Iterator[int]:
    """Where the cells begin that hold a backslash."""
    found = text.find(b"\\")
    while found >= 0:
        yield _start_of_cell(text, found)
        found = text.find(b"\\", text.index(_EDGE, found))


def _find_nested_cells(text: bytes) -> Iterator[int]:
    """Where the cells begin that are objects or lists."""
    for bracket in (b"{", b"["):
        found = text.find(bracket)
        while found >= 0:
            start = _start_of_cell(text, found)
            if start == found:
                yield start
            found = text.find(bracket, text.index(_EDGE, found))


def _start_of_cell(text: bytes, within: int) -> int:
    """Where the cell begins that a position lies in: after the end of the cell before, its comma or line end."""
    edge = text.rfind(_EDGE, 0, within)
    if edge < 0:
        return 0
    return edge + (len(_CELL_END) if text[edge + 1] == ord(",") else len(_ROW_END))


def _encode_plain(text: bytes, signs: Sequence[bytes]) -> bytes:
    """Cells without escapes: a quote before a sign can only open a text."""
    for sign in signs:
        text = text.replace(b'"' + sign, b"\"'" + sign)
    return text.translate(None, _EDGE)


def encode_fields(texts: Sequence[bytes | memoryview], *, guard: bool) -> list[bytes]:
    """What stands in the file for JSON texts."""
    read = msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[str])
    return [_quote(_guard(text) if guard else text) for text in read]


def _encode_field(raw: bytes, guard: bool) -> bytes:
    """A cell that is no field as it stands."""
    if not raw.startswith(b'"'):
        return _quote(raw.decode())
    [field] = encode_fields([raw], guard=guard)
    return field


def _guard(text: str) -> str:
    return f"'{text}" if text[:1] in _FORMULA_STARTS else text


def _quote(text: str) -> bytes:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'.encode()


def encode_grid(grid: CellGrid, encoding: TextEncoding = TextEncoding.UTF_8_BOM, *, guard: bool = True) -> bytes:
    """All rows of the page, each ended by CR LF. The grid is used up."""
    if grid.columns == 1:
        cells = zip(grid.starts.tolist(), grid.stops.tolist(), strict=True)
        return encode_rows([[bytes(grid.text[start:stop])] for start, stop in cells], encoding, guard=guard)
    text, last = grid.text, slice(grid.columns - 1, None, grid.columns)
    row_ends = grid.stops[last]
    text[row_ends], text[row_ends + 1] = LINE_END
    ends = grid.stops + 1
    ends[last] += 1
    odd = _find_odd_cells(grid, guard)
    spans = list(zip(*(each[odd].tolist() for each in (grid.starts, grid.stops, ends)), strict=True))
    view = text.data
    fields = encode_fields([view[start:stop] for start, stop, _ in spans], guard=guard)
    fields = [b"".join((field, view[stop:end])) for field, (_, stop, end) in zip(fields, spans, strict=True)]
    # A text begins with a quote: this can only be the literal.
    starts = grid.starts + len(_NULL) * (text[grid.starts] == _NULL[0])
    return encode_text(_join_cells(text, starts, ends, odd, fields), encoding)


def _find_odd_cells(grid: CellGrid, guard: bool) -> Places:
    """The cells that are no fields as they stand: those with escapes, and texts that begin like a formula."""
    is_odd = np.zeros(len(grid.starts), bool)
    is_odd[np.searchsorted(grid.starts, grid.escapes, "right") - 1] = True
    if guard:
        is_odd |= (grid.text[grid.starts] == QUOTE) & _IS_SIGN[grid.text[grid.starts + 1]]
    return np.flatnonzero(is_odd)


def _join_cells(text: Text, starts: Places, ends: Places, odd: Places, fields: Sequence[bytes]) -> bytes:
    """The cells one after another, some of them replaced by fields.

    To Arrow the text with the fields behind it is a column: cell, what is before the next cell, next cell, and so on.
    """
    # The API and workflows import this module, and must not load Arrow.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    field_ends = np.cumsum([len(text), *map(len, fields)])[1:]
    edges = np.concatenate([np.stack([starts, ends], axis=1).ravel(), field_ends])
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(b"".join([text.data, *fields]))]
    order = np.arange(0, 2 * len(starts), 2)
    order[odd] = 2 * len(starts) - 1 + np.arange(len(fields))
    column = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
    # Made by hand, because `pa.array` loads pandas.
    picked = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    cells = pc.take(column, picked)
    joined: bytes = cells.buffers()[2].to_pybytes()
    return joined
