"""Samples: invented rows for a template, so that one sees what it draws before there is any data."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, repeat
from typing import Final

from pydantic import JsonValue

from excel.template.models import ROW_HEAD_NAMES, CellKind, ColumnNode, Template

SAMPLE_ROWS: Final = 10

# Of either sign, with and without decimals, small and large: conditions and number formats have something to show.
_NUMBERS: Final = (1280, -15, 0, 99.9, -3.25, 48000, 7, 1050.5, -640, 12)
# What is quoted, escaped or in brackets are no codes; the word General has none either.
_NO_CODES: Final = re.compile(r'"[^"]*"|\\.|\[[^]]*\]|general', re.IGNORECASE)
_FIRST_MOMENT: Final = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def build_sample_rows(template: Template) -> list[dict[str, JsonValue]]:
    """Return ten rows; with row heads, the first ten rows that these have."""
    leaves = {leaf.name: leaf for leaf in reversed(template.leaves) if leaf.name is not None}
    charted = frozenset(key for chart in template.charts for key in chart.values)
    kinds = {key: _choose_kind(leaf, key in charted) for key, leaf in leaves.items()}
    made: list[dict[str, JsonValue]] = [
        {key: _build_cell(leaves[key], kinds[key], place) for key in template.keys} for place in range(SAMPLE_ROWS)
    ]
    if not template.rows:
        return made
    named = (leaf for node in template.rows for leaf in node.leaves if leaf.name is not None)
    heads = islice(chain.from_iterable(repeat(leaf.name, leaf.row_count) for leaf in named), SAMPLE_ROWS)
    return [{**row, ROW_HEAD_NAMES[-1]: head} for row, head in zip(made, heads, strict=False)]


def _choose_kind(leaf: ColumnNode, is_charted: bool) -> CellKind:
    """Return the kind of sample values, also for a column without a kind."""
    if leaf.kind is not CellKind.AUTO:
        return leaf.kind
    codes = _NO_CODES.sub("", leaf.number_format or "").lower()
    if set(codes) & set("ymdhs"):
        return CellKind.DATETIME
    is_number = bool(codes) and codes != "@"
    return CellKind.NUMBER if is_number or is_charted or leaf.rules else CellKind.TEXT


def _build_cell(leaf: ColumnNode, kind: CellKind, place: int) -> JsonValue:
    moment = _FIRST_MOMENT + timedelta(days=place, minutes=37 * place)
    match kind:
        case CellKind.NUMBER:
            return _NUMBERS[place]
        case CellKind.DATE:
            return moment.date().isoformat()
        case CellKind.DATETIME:
            return moment.isoformat()
        case CellKind.BOOLEAN:
            return place % 3 != 0
        case CellKind.RICH:
            return f"<b>{place + 1}</b> <font color='red'>red</font> and <i>italic</i>"
        case CellKind.LINK:
            return f"https://example.com/{place + 1}"
        case CellKind.FORMULA:
            return f"={place + 1}*2"
        case _:
            return f"{leaf.title} {place + 1}"
