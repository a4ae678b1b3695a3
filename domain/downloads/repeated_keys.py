"""Repeated keys: a row that has a key twice loses a value, for every JSON reader keeps the last one and says nothing.

A row is not read again to see that. The keys of a page are counted by its bytes, and held against the cells that were
read: only a page that has more keys than cells is looked at row by row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import is_not
from typing import Final

import msgspec

from domain.downloads.envelope import NULL
from domain.downloads.flat import Uneven, plainer

SAMPLE_ROWS: Final = 50
"""Among so many rows the columns are found whose cells are lists or objects, with keys of their own."""
KEYS_MAX: Final = 20
"""Of so many keys it is told that they come twice."""

_NESTED = (b"{", b"[")

Rows = Sequence[Sequence[msgspec.Raw]]


def find(uneven: Uneven, rows: Rows) -> list[str]:
    """The keys that the first such row has twice.

    Args:
        uneven: The rows as text.
        rows: The cells that were read of it, `NULL` itself where a row has no such key.
    """
    if not rows:
        return []
    keys = count(uneven.data) if uneven.keys is None else uneven.keys
    more = keys - sum(map(is_not, chain.from_iterable(rows), repeat(NULL)))
    if not more or more == _keys_within(rows, _nested_columns(rows)) or more == _keys_within(rows, range(len(rows[0]))):
        return []
    return _look(uneven.data)


def count(data: bytes) -> int:
    """How many keys stand in valid JSON, at any depth."""
    text = plainer(data)
    # A quote before a colon ends a key, unless it is escaped and part of a text.
    return text.count(b'":') - text.count(b'\\":')


def merge(before: Mapping[str, int], keys: Iterable[str], page: int) -> dict[str, int]:
    """The first page on which each key comes twice, with one page more."""
    merged = dict(before)
    for key in keys:
        if key in merged or len(merged) < KEYS_MAX:
            merged[key] = min(page, merged.get(key, page))
    return merged


def warnings(pages: Mapping[str, int]) -> list[str]:
    """What is to be told of keys that come twice.

    Args:
        pages: The first page on which each of them does, as the source counts.
    """
    return [
        f"Rows of the source have the key `{key[:200]}` twice, first on page {page}; the file has the last value."
        for key, page in sorted(pages.items(), key=lambda told: (told[1], told[0]))
    ]


def _nested_columns(rows: Rows) -> list[int]:
    sample = rows[:SAMPLE_ROWS]
    return [at for at in range(len(rows[0])) if any(bytes(row[at])[:1] in _NESTED for row in sample)]


def _keys_within(rows: Rows, columns: Sequence[int]) -> int:
    """How many keys stand within the cells of some columns."""
    return count(b"[%b]" % b",".join([row[at] for row in rows for at in columns]))


def _look(data: bytes) -> list[str]:
    for row in msgspec.json.decode(data, type=list[msgspec.Raw]):
        counted = Counter(_keys_of(bytes(row)))
        if repeated := [key for key, times in counted.items() if times > 1]:
            return repeated[:KEYS_MAX]
    return []


def _keys_of(row: bytes) -> list[str]:
    """All keys of a row as often as they stand there, however they are spelt."""
    try:
        keys: list[str] = json.loads(row, object_pairs_hook=_only_keys, parse_int=str, parse_float=str)
    except RecursionError:
        return []
    return keys


def _only_keys(pairs: Sequence[tuple[str, object]]) -> list[str]:
    return [key for key, _ in pairs]
