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

from domain.downloads.request import Encoding

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


def content_type(encoding: Encoding) -> str:
    """What a file in this encoding is served as."""
    return "text/csv; charset=gb18030" if encoding is Encoding.GB18030 else CONTENT_TYPE


def head(columns: Sequence[str], encoding: Encoding = Encoding.UTF_8_BOM, *, guard: bool = True) -> bytes:
    """The byte order mark, if the encoding has one, and the line of column heads.

    It is never empty, as no upload can be of nothing: where an empty source names no columns either, the mark stands
    alone, or else an empty line.
    """
    mark = BOM if encoding is Encoding.UTF_8_BOM else b""
    if mark and not columns:
        return mark
    return (
        mark + encoded(b",".join(_quoted(_guarded(name) if guard else name) for name in columns), encoding) + LINE_END
    )


def lines(
    rows: Iterable[Sequence[msgspec.Raw | bytes]], encoding: Encoding = Encoding.UTF_8_BOM, *, guard: bool = True
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
    for start in sorted({*_cells_with_escapes(text), *_nested_cells(text)}):
        end = text.index(_EDGE, start)
        pieces += [_plain(text[done:start], signs), _field(text[start:end], guard)]
        done = end
    pieces.append(_plain(text[done:], signs))
    return encoded(b"".join(pieces), encoding)


def encoded(text: bytes, encoding: Encoding) -> bytes:
    """UTF-8 in the encoding of the file."""
    return text.decode().encode("gb18030") if encoding is Encoding.GB18030 else text


def _cells_with_escapes(text: bytes) -> Iterator[int]:
    """Where the cells begin that hold a backslash."""
    found = text.find(b"\\")
    while found >= 0:
        yield _start(text, found)
        found = text.find(b"\\", text.index(_EDGE, found))


def _nested_cells(text: bytes) -> Iterator[int]:
    """Where the cells begin that are objects or lists."""
    for bracket in (b"{", b"["):
        found = text.find(bracket)
        while found >= 0:
            start = _start(text, found)
            if start == found:
                yield start
            found = text.find(bracket, text.index(_EDGE, found))


def _start(text: bytes, within: int) -> int:
    """Where the cell begins that a position lies in: after the end of the cell before, its comma or line end."""
    edge = text.rfind(_EDGE, 0, within)
    if edge < 0:
        return 0
    return edge + (len(_CELL_END) if text[edge + 1] == ord(",") else len(_ROW_END))


def _plain(text: bytes, signs: Sequence[bytes]) -> bytes:
    """Cells without escapes: a quote before a sign can only open a text."""
    for sign in signs:
        text = text.replace(b'"' + sign, b"\"'" + sign)
    return text.translate(None, _EDGE)


def fields(texts: Sequence[bytes | memoryview], *, guard: bool) -> list[bytes]:
    """What stands in the file for JSON texts."""
    read = msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[str])
    return [_quoted(_guarded(text) if guard else text) for text in read]


def _field(raw: bytes, guard: bool) -> bytes:
    """A cell that is no field as it stands."""
    if not raw.startswith(b'"'):
        return _quoted(raw.decode())
    [field] = fields([raw], guard=guard)
    return field


def _guarded(text: str) -> str:
    return f"'{text}" if text[:1] in _FORMULA_STARTS else text


def _quoted(text: str) -> bytes:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'.encode()
