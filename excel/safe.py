"""Safe: what a text must become before a book can hold it, and how it is spelled in the book's XML.

Two steps, for heads and titles here and for columns of cells elsewhere, which must agree:

1. `text`: what no XML 1.0 document and no UTF-8 can hold becomes U+FFFD: lone surrogates, U+FFFE and U+FFFF. This is
   what is given to xlsxwriter, which escapes for itself.
2. `xml`: the text as content of an element. Control characters other than tab and line feed become `_xHHHH_`, as Excel
   writes them (a carriage return, too: a reader of XML would take it for a line feed), and an underscore that begins
   such a spelling in the text itself becomes `_x005F_`, even where two of them share an underscore. Then `&`, `<`, `>`.

Lengths are counted in UTF-16 units, as Excel counts: an emoji is two. `bounded` is the declared cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import count
from typing import Final

CHARACTERS_MAX: Final = 32_767
LINE_FEEDS_MAX: Final = 253
SHEET_NAME_MAX: Final = 31

REPLACEMENT: Final = "\ufffd"
LITERAL_ESCAPE: Final = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")
"""An underscore that a reader would take for the beginning of an escape."""

_NOT_TEXT = re.compile("[\ud800-\udfff\ufffe\uffff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")
_NOT_IN_SHEET_NAMES = re.compile(r"[\[\]:*?/\\\x00-\x1f\x7f\ufffd]+")
_RESERVED_SHEET_NAME = "history"


def text(value: str) -> str:
    """The text without what can stand in no book."""
    return _NOT_TEXT.sub(REPLACEMENT, value)


def printable(value: str) -> str:
    """The text where control characters, too, are shown as unreadable: for rich text, where they mean nothing."""
    return _CONTROL.sub(REPLACEMENT, value)


def bounded(value: str, limit: int = CHARACTERS_MAX) -> tuple[str, bool]:
    """The text in the limits of a cell, and whether anything was changed.

    What is too long is cut, never within a character; line feeds beyond the limit become spaces.
    """
    kept = value
    if value.count("\n") > LINE_FEEDS_MAX:
        lines = value.split("\n")
        kept = "\n".join(lines[:LINE_FEEDS_MAX]) + "\n" + " ".join(lines[LINE_FEEDS_MAX:])
    if length(kept) > limit:
        kept = kept.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")
    return kept, kept != value


def length(value: str) -> int:
    """How many characters it is for Excel: UTF-16 units."""
    return len(value) if value.isascii() else len(value) + sum(character > "\uffff" for character in value)


def xml(value: str) -> str:
    """A safe text as the content of an XML element."""
    escaped = LITERAL_ESCAPE.sub("_x005F_", value)
    escaped = _CONTROL.sub(lambda found: f"_x{ord(found[0]):04X}_", escaped)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sheet_name(wanted: str | None, taken: Collection[str]) -> str:
    """A name that Excel takes for a sheet: as near to the wanted one as can be, and none that the book has."""
    used = {_RESERVED_SHEET_NAME, *map(_folded, taken)}
    name = _trimmed(_NOT_IN_SHEET_NAMES.sub(" ", text(wanted or "")), SHEET_NAME_MAX)
    if name and _folded(name) not in used:
        return name
    numbered = (
        (f" ({number})" for number in count(2)) if name else (f"Sheet{number}" for number in count(len(taken) + 1))
    )
    candidates = (_trimmed(name, SHEET_NAME_MAX - len(ending)) + ending for ending in numbered)
    return next(candidate for candidate in candidates if _folded(candidate) not in used)


def _trimmed(name: str, limit: int) -> str:
    return bounded(name.strip(" '"), limit)[0].rstrip(" '")


def _folded(name: str) -> str:
    """Excel tells names apart by more than case."""
    return name.lower().casefold()
