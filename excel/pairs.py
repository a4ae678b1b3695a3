"""Pairs: the names and values of a header or footer, and how many of them stand in a row."""

from __future__ import annotations

import json
from typing import Final, TypeAlias

from pydantic import JsonValue

PAIRS_IN_A_ROW_MAX: Final = 4

Pair: TypeAlias = tuple[str, str]


def rows_of(value: JsonValue, width: int) -> list[list[Pair]]:
    """The rows of pairs, as many in each as a table of this width should have.

    An object is laid out by rule: four pairs a row at most, each two columns at least, rows of the same number and
    only the last one shorter. An array of objects is rows as given, cut only where a row has more pairs than columns.
    """
    if isinstance(value, dict):
        pairs = _pairs(value)
        most = max(1, min(PAIRS_IN_A_ROW_MAX, width // 2))
        return _cut(pairs, _even(len(pairs), most))
    given = [_pairs(row) for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return [part for row in given for part in _cut(row, max(1, width))]


def shared(width: int, parts: int) -> list[int]:
    """A width shared out as evenly as can be, the first ones getting what is left over."""
    share, extra = divmod(width, parts)
    return [share + (place < extra) for place in range(parts)]


def _even(pairs: int, most: int) -> int:
    rows = max(1, -(-pairs // most))
    return max(1, -(-pairs // rows))


def _cut(pairs: list[Pair], size: int) -> list[list[Pair]]:
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def _pairs(row: dict[str, JsonValue]) -> list[Pair]:
    return [(name, _shown(value)) for name, value in row.items()]


def _shown(value: JsonValue) -> str:
    """A value as a person reads it."""
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
