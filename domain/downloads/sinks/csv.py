"""CSV: the JSON cells of a page become final bytes, exact to the last digit and safe to open in a spreadsheet.

A JSON text without escapes is a quoted CSV field already, and a number is its own text. So the cells of a page are
joined as they are, and differences are corrected in the joined text, many cells at a time. Every cell is followed by a
byte that cannot occur in JSON text, which marks its end and is removed at last.

GB18030 has a code for every character of Unicode, so no encoding replaces or drops any, and no byte of a longer code is
a quote, a comma or a line end. A program that reads such a file as GBK (code page 936) shows only those characters
wrong that GBK lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from domain.downloads.flat import QUOTE, CellGrid, build_byte_table
from domain.downloads.models import TextEncoding

if TYPE_CHECKING:
    from domain.downloads.flat import Places, Text

CONTENT_TYPE = "text/csv; charset=utf-8"
BOM = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
# A spreadsheet interprets a text that begins with one of these as a formula (OWASP "CSV injection", ASVS 1.2.10).
_FORMULA_STARTS = frozenset("=+-@\t\r\n\0")
# The other characters are escapes in JSON text.
FORMULA_SIGNS = (b"=", b"+", b"-", b"@")
_EDGE = b"\x1f"
_CELL_END = _EDGE + b","
_ROW_END = _EDGE + LINE_END
_NULL = b"null"


class CsvSink:
    """Pages as CSV, which are final bytes."""

    extension = "csv"
    needs_rendering = False

    def __init__(self, encoding: TextEncoding, guard_formulas: bool) -> None:
        self._encoding = encoding
        self._guard = guard_formulas
        self.content_type = get_content_type(encoding)

    def encode_head(self, columns: Sequence[str]) -> bytes:
        """Encode the byte order mark, if the encoding has one, and the column heads."""
        return encode_head(columns, self._encoding, guard=self._guard)

    def encode_page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """Encode one line a row."""
        return encode_rows(rows, self._encoding, guard=self._guard)

    def encode_grid(self, grid: CellGrid, places: Sequence[int | None]) -> bytes:
        """Encode one line a row, with all keys in their order: CSV has no template that would select columns."""

        return encode_grid(grid, self._encoding, guard=self._guard)


def get_content_type(encoding: TextEncoding) -> str:
    """Return the content type of a file in this encoding."""
    return "text/csv; charset=gb18030" if encoding is TextEncoding.GB18030 else CONTENT_TYPE


def encode_head(
    columns: Sequence[str], encoding: TextEncoding = TextEncoding.UTF_8_BOM, *, guard: bool = True
) -> bytes:
    """Encode the byte order mark, if the encoding has one, and the column heads.

    The result is never empty, since an upload cannot be: without columns it is the mark, or else an empty line.
    """
    mark = BOM if encoding is TextEncoding.UTF_8_BOM else b""
    if mark and not columns:
        return mark
    return (
        mark
        + transcode_from_utf8(
            b",".join(_always_quote_field(_prefix_formula_with_quote(name) if guard else name) for name in columns),
            encoding,
        )
        + LINE_END
    )


def encode_rows(
    rows: Iterable[Sequence[msgspec.Raw | bytes]],
    encoding: TextEncoding = TextEncoding.UTF_8_BOM,
    *,
    guard: bool = True,
) -> bytes:
    """Encode all rows of a page, each ended by CR LF."""
    cells = list(rows)
    if not cells:
        return b""
    # An empty cell in a single column would be an empty line, which many readers skip.
    nothing = b'""' if len(cells[0]) == 1 else b""
    # A text ends in a quote and a nested value in a bracket, so this can only be the literal.
    text = _ROW_END.join([*map(_CELL_END.join, cells), b""]).replace(_NULL + _EDGE, nothing + _EDGE)
    # Checked once for the page, because most pages have none.
    signs = [sign for sign in FORMULA_SIGNS if guard and sign in text and b'"' + sign in text]
    pieces, done = [], 0
    for start in sorted({*_find_cells_with_escapes(text), *_find_nested_cells(text)}):
        end = text.index(_EDGE, start)
        pieces += [
            _encode_unescaped_cells_and_guard_signs(text[done:start], signs),
            _encode_field(text[start:end], guard),
        ]
        done = end
    pieces.append(_encode_unescaped_cells_and_guard_signs(text[done:], signs))
    return transcode_from_utf8(b"".join(pieces), encoding)


def transcode_from_utf8(text: bytes, encoding: TextEncoding) -> bytes:
    """Convert UTF-8 to the encoding of the file."""
    return text.decode().encode("gb18030") if encoding is TextEncoding.GB18030 else text


def _find_cells_with_escapes(text: bytes) -> Iterator[int]:
    """Yield the starts of cells that contain a backslash."""
    found = text.find(b"\\")
    while found >= 0:
        yield _find_cell_start(text, found)
        found = text.find(b"\\", text.index(_EDGE, found))


def _find_nested_cells(text: bytes) -> Iterator[int]:
    """Yield the starts of cells that are objects or lists."""
    for bracket in (b"{", b"["):
        found = text.find(bracket)
        while found >= 0:
            start = _find_cell_start(text, found)
            if start == found:
                yield start
            found = text.find(bracket, text.index(_EDGE, found))


def _find_cell_start(text: bytes, position: int) -> int:
    """Return the start of the cell at a position."""
    edge = text.rfind(_EDGE, 0, position)
    if edge < 0:
        return 0
    return edge + (len(_CELL_END) if text[edge + 1] == ord(",") else len(_ROW_END))


def _encode_unescaped_cells_and_guard_signs(text: bytes, signs: Sequence[bytes]) -> bytes:
    """Encode cells without escapes: a quote before a sign can only open a text."""
    for sign in signs:
        text = text.replace(b'"' + sign, b"\"'" + sign)
    return text.translate(None, _EDGE)


def encode_json_texts_as_csv_fields(texts: Sequence[bytes | memoryview], *, guard: bool) -> list[bytes]:
    """Decode JSON texts and quote each as a field; with `guard`, one that a spreadsheet would run is disarmed."""
    read = msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[str])
    return [_always_quote_field(_prefix_formula_with_quote(text) if guard else text) for text in read]


def _encode_field(raw: bytes, guard: bool) -> bytes:
    """Encode a cell that is not a CSV field as it is."""
    if not raw.startswith(b'"'):
        return _always_quote_field(raw.decode())
    [field] = encode_json_texts_as_csv_fields([raw], guard=guard)
    return field


def _prefix_formula_with_quote(text: str) -> str:
    return f"'{text}" if text[:1] in _FORMULA_STARTS else text


def _always_quote_field(text: str) -> bytes:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'.encode()


def encode_grid(grid: CellGrid, encoding: TextEncoding = TextEncoding.UTF_8_BOM, *, guard: bool = True) -> bytes:
    """Encode all rows of a flat page, each ended by CR LF. The grid is overwritten."""
    if grid.columns == 1:
        cells = zip(grid.starts.tolist(), grid.stops.tolist(), strict=True)
        return encode_rows([[bytes(grid.text[start:stop])] for start, stop in cells], encoding, guard=guard)
    text, last = grid.text, slice(grid.columns - 1, None, grid.columns)
    row_ends = grid.stops[last]
    text[row_ends], text[row_ends + 1] = LINE_END
    ends = grid.stops + 1
    ends[last] += 1
    odd = _find_cells_to_replace(grid, guard)
    spans = list(zip(*(each[odd].tolist() for each in (grid.starts, grid.stops, ends)), strict=True))
    view = text.data
    fields = encode_json_texts_as_csv_fields([view[start:stop] for start, stop, _ in spans], guard=guard)
    fields = [b"".join((field, view[stop:end])) for field, (_, stop, end) in zip(fields, spans, strict=True)]
    # A text begins with a quote, so this can only be the literal.
    starts = grid.starts + len(_NULL) * (text[grid.starts] == _NULL[0])
    return transcode_from_utf8(_join_cells_with_replacements(text, starts, ends, odd, fields), encoding)


def _find_cells_to_replace(grid: CellGrid, guard: bool) -> Places:
    """Return the cells that are not CSV fields as they are: those with escapes, and texts that begin like a formula."""
    import numpy as np  # noqa: PLC0415 - see `_join_cells_with_replacements`

    is_odd = np.zeros(len(grid.starts), bool)
    is_odd[np.searchsorted(grid.starts, grid.escapes, "right") - 1] = True
    if guard:
        is_sign = build_byte_table(b"".join(FORMULA_SIGNS))
        is_odd |= (grid.text[grid.starts] == QUOTE) & is_sign[grid.text[grid.starts + 1]]
    return np.flatnonzero(is_odd)


def _join_cells_with_replacements(
    text: Text, starts: Places, ends: Places, replaced_cells: Places, fields: Sequence[bytes]
) -> bytes:
    """Join the cells, some of them replaced by fields.

    The text with the fields behind it is read as an Arrow column of alternating cells and separators.
    """
    # The API and workflows import this module, and must not load Arrow and NumPy.
    import numpy as np  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    from excel.arrow import pa  # noqa: PLC0415

    field_ends = np.cumsum([len(text), *map(len, fields)])[1:]
    edges = np.concatenate([np.stack([starts, ends], axis=1).ravel(), field_ends])
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(b"".join([text.data, *fields]))]
    order = np.arange(0, 2 * len(starts), 2)
    order[replaced_cells] = 2 * len(starts) - 1 + np.arange(len(fields))
    column = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
    # Built from buffers, because `pa.array` loads pandas.
    picked = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    cells = pc.take(column, picked)
    joined: bytes = cells.buffers()[2].to_pybytes()
    return joined
