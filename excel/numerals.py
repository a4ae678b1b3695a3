"""Numerals: which texts of numbers Excel can hold as numbers without changing a digit.

Excel keeps 15 significant digits. Zeros before the first digit and at the end of a fraction do not count, as they are
none that could be lost; zeros at the end of a whole number do, as it may well be an identifier.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from excel.buffers import Mask, View, view

DIGITS_MAX: Final = 15
_EXPONENT_MAX: Final = 307
_MINUS = ord("-")
_PLAIN = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"


def exact(numerals: pa.Array) -> Mask:
    """For each number as JSON writes it whether Excel can hold it; null is true."""
    seen = view(numerals)
    joined = seen.joined()
    if b"e" in joined or b"E" in joined:
        found = pc.match_substring_regex(numerals, "[eE]").fill_null(False)
        with_exponent: Mask = found.to_numpy(zero_copy_only=False)
        fits = _short(pc.if_else(found, "0", numerals), pointed=b"." in joined)
        fits[with_exponent] = [_scientific(text) for text in numerals.filter(found).to_pylist()]
        return fits
    return _short(numerals, pointed=b"." in joined)


def plain(texts: pa.Array) -> Mask:
    """For each text whether it is a number as people write it that Excel can hold: no exponent, no zero before it."""
    found = pc.match_substring_regex(texts, _PLAIN).fill_null(False)
    if not pc.any(found).as_py():
        return np.zeros(len(texts), np.bool_)
    mask: Mask = found.to_numpy(zero_copy_only=False) & exact(pc.if_else(found, texts, "0"))
    return mask


def _short(numerals: pa.Array, *, pointed: bool) -> Mask:
    """Whether each has 15 significant digits or less; none has an exponent."""
    seen = view(numerals)
    fits: Mask = seen.lengths <= DIGITS_MAX
    if fits.all():
        return fits
    if not pointed:
        return seen.lengths - _signs(seen) <= DIGITS_MAX
    long = pa.array(~fits)
    fits[~fits] = _digits(numerals.filter(long)) <= DIGITS_MAX
    return fits


def _signs(seen: View) -> Mask:
    signs: Mask = seen.at(seen.starts) == _MINUS
    return signs


def _digits(numerals: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The significant digits of each."""
    pointed = pc.match_substring(numerals, ".")
    bare = pc.if_else(pointed, pc.utf8_rtrim(numerals, "0"), numerals)
    bare = pc.utf8_rtrim(pc.utf8_ltrim(bare, "-0."), ".")
    points = pc.cast(pc.match_substring(bare, "."), pa.int32())
    counts: np.ndarray[tuple[int], np.dtype[np.int32]] = pc.subtract(pc.binary_length(bare), points).to_numpy()
    return counts


def _scientific(text: str) -> bool:
    """Whether a number with an exponent keeps its digits and is neither too large nor too small."""
    digits = len(text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0"))
    number = Decimal(text)
    return digits <= DIGITS_MAX and (not number or abs(number.adjusted()) <= _EXPONENT_MAX)


def binary(numerals: pa.Array) -> Mask:
    """For each fraction whether it is what a number of 64 bits is written as, so that none of its digits are lost."""
    found = ["." in text and Decimal(repr(float(text))) == Decimal(text) for text in numerals.to_pylist()]
    return np.array(found, np.bool_)
