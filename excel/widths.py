"""Widths: how many characters wide a text is, and what width suits a column."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

CHARACTERS_MAX: Final = 60
CHARACTERS_MIN: Final = 6
PADDING: Final = 2

WIDE_TENTHS: Final = 21
CAPITAL_TENTHS: Final = 12
"""What a character takes of a line in Excel's own font, in tenths of a digit, whose width is the unit of columns."""

_WIDE = frozenset({"W", "F"})
_AMBIGUOUS_WIDE_FROM = "\u2000"
_WITHOUT_WIDTH = frozenset({"Mn", "Me", "Cf"})


def shown(text: str) -> int:
    """The width of a text's longest line in characters, where a Chinese, Japanese or Korean one counts double."""
    if text.isascii():
        return len(text) if "\n" not in text else max(map(len, text.split("\n")))
    return max(sum(map(_character, line)) for line in text.split("\n"))


def fit(texts: Iterable[str]) -> float:
    """The width of a column that shows these texts, within limits."""
    widest = max(map(_wanted, texts), default=0)
    return float(min(CHARACTERS_MAX, max(CHARACTERS_MIN, widest) + PADDING))


def tenths(character: str) -> int:
    """What a character takes of a line on the screen, in tenths of a digit."""
    width = _character(character)
    if width == 2:
        return WIDE_TENTHS
    return CAPITAL_TENTHS if character.isupper() else 10 * width


def lines(text: str, width: float, scale: float = 1.0) -> int:
    """How many lines a text takes in a cell of this width, in a font so much larger than that of the data."""
    room = max(1.0, (width - 1) / scale)
    return sum(max(1, -(-int(shown(line) * 100) // int(room * 100))) for line in text.split("\n"))


def settle(
    fixed: Sequence[float | None], fitted: Sequence[float], wishes: Iterable[tuple[int, int, float]]
) -> list[float]:
    """The widths of a sheet's columns: fixed ones as they are, the others wide enough for their wishes, too.

    Args:
        fixed: The widths that were asked for.
        fitted: What suits the data, for columns without.
        wishes: First and last column of a merged area, and the width that it should have together.
    """
    widths = [suits if given is None else given for given, suits in zip(fixed, fitted, strict=True)]
    for first, last, wish in wishes:
        free = [place for place in range(first, last + 1) if fixed[place] is None]
        missing = wish - sum(widths[first : last + 1])
        if missing > 0 and free:
            for place in free:
                widths[place] = min(CHARACTERS_MAX, widths[place] + missing / len(free))
    return widths


def _wanted(text: str) -> int:
    """What a column should be wide for a text; for one of several lines, so that none of them is wrapped once more."""
    if "\n" not in text:
        return shown(text)
    return max(-(-sum(map(tenths, line)) // 10) for line in text.split("\n"))


def _character(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in _WITHOUT_WIDTH:
        return 0
    kind = unicodedata.east_asian_width(character)
    # Dashes, quotes and signs are wide in Chinese fonts; letters with accents, Greek and Cyrillic ones are not.
    return 2 if kind in _WIDE or (kind == "A" and character >= _AMBIGUOUS_WIDE_FROM) else 1
