"""Options of requests for transfers, and rows of them in which every two values come together once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import combinations

Row = Mapping[str, str]
Pair = frozenset[tuple[str, str]]

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "request": ("batch", "single"),
    "path": ("whole", "folder", "relative", "doubled"),
    "signature": ("lower", "upper"),
    "user": ("root", "app"),
    "folder": ("unix", "windows", "slash"),
    "file_name": ("app.conf", "配置 1.conf"),
    "biz_id": ("2", "0", "4294967295"),
    "container": ("plain", "runtime"),
    "project": ("first", "second"),
}
"""The first value of each is the plainest."""


def plain_row() -> Row:
    """Return the plainest value of every option."""
    return {name: values[0] for name, values in OPTIONS.items()}


@cache
def pairwise_rows() -> tuple[Row, ...]:
    """Return rows of options that together hold every pair of values of two options."""
    missing = {
        frozenset({(one, value), (other, beside)})
        for one, other in combinations(OPTIONS, 2)
        for value in OPTIONS[one]
        for beside in OPTIONS[other]
    }
    rows: list[Row] = []
    while missing:
        row = _next_row(missing)
        missing -= pairs_of(row)
        rows.append(row)
    return tuple(rows)


def pairs_of(row: Row) -> set[Pair]:
    """Return the pairs of values that come together in a row."""
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


def _next_row(missing: set[Pair]) -> Row:
    """Begin with a pair that is missing, and give every other option the value that adds most."""
    row = dict(min(missing, key=sorted))
    for name, values in OPTIONS.items():
        if name not in row:
            row[name] = max(values, key=lambda value: len(missing & pairs_of({**row, name: value})))
    return {name: row[name] for name in OPTIONS}
