"""Texts: what a text must become before a workbook can hold it, one text or a column at a time, and numbers in text.

Two steps, for single texts such as heads and titles and for columns of cells (`..._column_...`), which must agree:

1. `replace_invalid_characters`: what no XML 1.0 document and no UTF-8 can hold becomes U+FFFD: lone surrogates, U+FFFE
   and U+FFFF. This is what is given to xlsxwriter, which escapes for itself.
2. `escape_xml`: the text as content of an element. Control characters other than tab and line feed become `_xHHHH_`,
   as Excel writes them (a carriage return, too: a reader of XML would take it for a line feed), and an underscore that
   begins such a spelling in the text itself becomes `_x005F_`, even where two of them share an underscore. Then `&`,
   `<`, `>`.

Lengths are counted in UTF-16 units, as Excel counts: an emoji is two. `truncate_to_cell` is the declared cut.

Excel keeps 15 significant digits of a number. Zeros before the first digit and at the end of a fraction do not count,
as they cannot be lost; zeros at the end of a whole number do, as it may be an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from decimal import Decimal
from itertools import count
from typing import Final

import numpy as np
import pyarrow.compute as pc

from excel.arrow import pa
from excel.cells import CellBytesWithOffsets, Mask, view_bytes

TEXT_CHARACTERS_MAX: Final = 32_767
LINE_FEEDS_MAX: Final = 253
SHEET_NAME_MAX: Final = 31

REPLACEMENT: Final = "\ufffd"
LITERAL_ESCAPE: Final = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")
"""An underscore that a reader would take for the beginning of an escape."""

_NOT_TEXT = re.compile("[\ud800-\udfff\ufffe\uffff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")
_NOT_IN_SHEET_NAMES = re.compile(r"[\[\]:*?/\\\x00-\x1f\x7f\ufffd]+")
_RESERVED_SHEET_NAME = "history"


def replace_invalid_characters(value: str) -> str:
    """Replace the characters that no workbook can hold."""
    return _NOT_TEXT.sub(REPLACEMENT, value)


def replace_control_characters(value: str) -> str:
    """Replace control characters, too: they have no meaning in rich text."""
    return _CONTROL.sub(REPLACEMENT, value)


def truncate_to_cell(value: str, limit: int = TEXT_CHARACTERS_MAX) -> tuple[str, bool]:
    """Cut a text to the limits of a cell; return it and whether it was changed.

    What is too long is cut, never within a character; line feeds beyond the limit become spaces.
    """
    kept = value
    if value.count("\n") > LINE_FEEDS_MAX:
        lines = value.split("\n")
        kept = "\n".join(lines[:LINE_FEEDS_MAX]) + "\n" + " ".join(lines[LINE_FEEDS_MAX:])
    if count_utf16_units(kept) > limit:
        kept = kept.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")
    return kept, kept != value


def count_utf16_units(value: str) -> int:
    """Count characters as Excel does, in UTF-16 units."""
    return len(value) if value.isascii() else len(value) + sum(character > "\uffff" for character in value)


def escape_xml(value: str) -> str:
    """Escape a valid text as the content of an XML element."""
    escaped = LITERAL_ESCAPE.sub("_x005F_", value)
    escaped = _CONTROL.sub(lambda found: f"_x{ord(found[0]):04X}_", escaped)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def choose_sheet_name(requested: str | None, taken: Collection[str]) -> str:
    """Return a sheet name that Excel accepts and the workbook does not have, close to the requested one."""
    used = {_RESERVED_SHEET_NAME, *map(_fold_case, taken)}
    name = _trim_sheet_name(_NOT_IN_SHEET_NAMES.sub(" ", replace_invalid_characters(requested or "")), SHEET_NAME_MAX)
    if name and _fold_case(name) not in used:
        return name
    numbered = (
        (f" ({number})" for number in count(2)) if name else (f"Sheet{number}" for number in count(len(taken) + 1))
    )
    candidates = (_trim_sheet_name(name, SHEET_NAME_MAX - len(ending)) + ending for ending in numbered)
    return next(candidate for candidate in candidates if _fold_case(candidate) not in used)


def _trim_sheet_name(name: str, limit: int) -> str:
    return truncate_to_cell(name.strip(" '"), limit)[0].rstrip(" '")


def _fold_case(name: str) -> str:
    """Fold a name as Excel compares names: without case."""
    return name.lower().casefold()


_NOT_CHARACTERS = ("\ufffe", "\uffff")
_FIRST_OF_NOT_CHARACTERS = 0xEF
_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_ESCAPED = r"[\x00-\x08\x0b-\x1f]|_x[0-9A-Fa-f]{4}_"
_FIRST_PRINTED = 0x20
_SPACE, _TAB, _LINE_FEED = 0x20, 0x09, 0x0A


def truncate_column_to_cells(texts: pa.Array) -> tuple[pa.Array, int]:
    """Cut texts to the limits of cells; return them and how many were changed."""
    seen = view_bytes(texts)
    lengths = seen.lengths
    # A byte is never more than one character, so that few columns are looked at any closer.
    suspects = lengths > LINE_FEEDS_MAX
    if not suspects.any():
        return texts, 0
    suspects = lengths > TEXT_CHARACTERS_MAX
    if (seen.data == _LINE_FEED).any():
        feeds = pc.count_substring(texts, "\n").fill_null(0).to_numpy(zero_copy_only=False)
        suspects |= feeds > LINE_FEEDS_MAX
    if not suspects.any():
        return texts, 0
    found = [truncate_to_cell(text) for text in texts.filter(pa.array(suspects)).to_pylist()]
    changed = pc.replace_with_mask(texts, pa.array(suspects), pa.array([text for text, _ in found], pa.string()))
    return changed, sum(was_cut for _, was_cut in found)


def escape_column_xml(texts: pa.Array) -> pa.Array:
    """Escape texts as contents of XML elements."""
    seen = view_bytes(texts)
    joined = seen.join()
    if len(seen.data) and seen.data.max() >= _FIRST_OF_NOT_CHARACTERS:
        for character in _NOT_CHARACTERS:
            if character.encode() in joined:
                texts = pc.replace_substring(texts, character, REPLACEMENT)
    spelled = texts
    for sign, entity in _ENTITIES:
        if sign.encode() in joined:
            spelled = pc.replace_substring(spelled, sign, entity)
    # To look for one byte takes a tenth of the time of looking for two.
    if (b"_" in joined and b"_x" in joined) or _has_control_characters(seen):
        rare = pc.match_substring_regex(texts, _ESCAPED).fill_null(False)
        spelled = _replace_where(spelled, rare, texts, escape_xml)
    return spelled


def mask_edge_spaces(texts: pa.Array) -> Mask:
    """Return a mask of the texts that begin or end with white space, which XML readers drop by default."""
    seen = view_bytes(texts)
    if not len(seen.data):
        return np.zeros(len(texts), np.bool_)
    found: Mask = (seen.bytes_at(seen.starts) <= _SPACE) | (seen.bytes_at(seen.ends - 1) <= _SPACE)
    return found & (seen.lengths > 0)


def _replace_where(texts: pa.Array, where: pa.Array, sources: pa.Array, function: Callable[[str], str]) -> pa.Array:
    """Replace texts where the mask is true by what a function makes of the sources."""
    made = [function(source) for source in sources.filter(where).to_pylist()]
    return pc.replace_with_mask(texts, where, pa.array(made, pa.string())) if made else texts


def _has_control_characters(seen: CellBytesWithOffsets) -> bool:
    if not len(seen.data) or seen.data.min() >= _FIRST_PRINTED:
        return False
    controls = seen.data[seen.data < _FIRST_PRINTED]
    return bool(((controls != _TAB) & (controls != _LINE_FEED)).any())


DIGITS_MAX: Final = 15
_EXPONENT_MAX: Final = 307
_EXPONENT_DIGITS_MAX: Final = 6
_MINUS = ord("-")
_PLAIN_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"


def mask_numbers_excel_can_hold(numerals: pa.Array) -> Mask:
    """Return a mask of the JSON numbers that Excel can hold; null is true."""
    seen = view_bytes(numerals)
    joined = seen.join()
    if b"e" in joined or b"E" in joined:
        found = pc.match_substring_regex(numerals, "[eE]").fill_null(False)
        with_exponent: Mask = found.to_numpy(zero_copy_only=False)
        fits = _mask_at_most_15_digits(pc.if_else(found, "0", numerals), has_decimal_points=b"." in joined)
        fits[with_exponent] = [_can_excel_hold_scientific_number(text) for text in numerals.filter(found).to_pylist()]
        return fits
    return _mask_at_most_15_digits(numerals, has_decimal_points=b"." in joined)


def mask_plain_numbers(texts: pa.Array) -> Mask:
    """Return a mask of the texts that are plain numbers that Excel can hold: no exponent, no leading zero."""
    found = pc.match_substring_regex(texts, _PLAIN_NUMBER).fill_null(False)
    if not pc.any(found).as_py():
        return np.zeros(len(texts), np.bool_)
    mask: Mask = found.to_numpy(zero_copy_only=False) & mask_numbers_excel_can_hold(pc.if_else(found, texts, "0"))
    return mask


def _mask_at_most_15_digits(numerals: pa.Array, *, has_decimal_points: bool) -> Mask:
    """Return a mask of the numbers with 15 significant digits or less; none may have an exponent."""
    seen = view_bytes(numerals)
    fits: Mask = seen.lengths <= DIGITS_MAX
    if fits.all():
        return fits
    if not has_decimal_points:
        return seen.lengths - _flag_texts_with_minus(seen) <= DIGITS_MAX
    long = pa.array(~fits)
    fits[~fits] = _count_significant_digits(numerals.filter(long)) <= DIGITS_MAX
    return fits


def _flag_texts_with_minus(seen: CellBytesWithOffsets) -> Mask:
    signs: Mask = seen.bytes_at(seen.starts) == _MINUS
    return signs


def _count_significant_digits(numerals: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    pointed = pc.match_substring(numerals, ".")
    bare = pc.if_else(pointed, pc.utf8_rtrim(numerals, "0"), numerals)
    bare = pc.utf8_rtrim(pc.utf8_ltrim(bare, "-0."), ".")
    points = pc.cast(pc.match_substring(bare, "."), pa.int32())
    counts: np.ndarray[tuple[int], np.dtype[np.int32]] = pc.subtract(pc.binary_length(bare), points).to_numpy()
    return counts


def _can_excel_hold_scientific_number(text: str) -> bool:
    """Return whether Excel can hold a number with an exponent."""
    if not _has_short_exponent(text):
        return False
    digits = len(text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0"))
    number = Decimal(text)
    return digits <= DIGITS_MAX and (not number or abs(number.adjusted()) <= _EXPONENT_MAX)


def mask_fractions_equal_to_float_repr(numerals: pa.Array) -> Mask:
    """Return a mask of the fractions that a float of 64 bits is written as, so that no digits are lost."""
    found = [
        "." in text and _has_short_exponent(text) and Decimal(repr(float(text))) == Decimal(text)
        for text in numerals.to_pylist()
    ]
    return np.array(found, np.bool_)


def _has_short_exponent(text: str) -> bool:
    """Return whether a number has no exponent, or one that a decimal of Python can hold."""
    return len(text.lower().partition("e")[2].lstrip("+-0")) <= _EXPONENT_DIGITS_MAX
