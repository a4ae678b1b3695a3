"""CSV: the JSON cells of a page become final bytes, exact to the last digit and safe to open in a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

CONTENT_TYPE = "text/csv; charset=utf-8"
BOM = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
# A spreadsheet takes a text that begins with one of these for a formula (OWASP "CSV injection", ASVS 1.2.10).
_FORMULA_STARTS = "=+-@\t\r\n\0"
_FORMULA_STARTS_RAW = frozenset(b"=+-@")
_QUOTE, _BACKSLASH = ord('"'), b"\\"


def head(columns: Sequence[str]) -> bytes:
    """The byte order mark and the line of column heads; an empty source that names no columns has no such line."""
    return BOM + (b",".join(_quoted(_guarded(name)) for name in columns) + LINE_END if columns else b"")


def lines(rows: Iterable[Sequence[msgspec.Raw | bytes]]) -> bytes:
    """All rows of a page, each ended by CR LF."""
    return b"".join([b",".join([_cell(bytes(raw)) for raw in row]) + LINE_END for row in rows])


def _cell(raw: bytes) -> bytes:
    """One cell: a JSON text without escapes is already a quoted CSV field, a number is its own text."""
    first = raw[0]
    if first == _QUOTE:
        if _BACKSLASH in raw or raw[1] in _FORMULA_STARTS_RAW:
            return _quoted(_guarded(msgspec.json.decode(raw, type=str)))
        return raw
    if first in b"[{":
        return _quoted(raw.decode())
    return b"" if raw == b"null" else raw


def _guarded(text: str) -> str:
    return f"'{text}" if text[:1] and text[0] in _FORMULA_STARTS else text


def _quoted(text: str) -> bytes:
    return b'"' + text.replace('"', '""').encode() + b'"'
