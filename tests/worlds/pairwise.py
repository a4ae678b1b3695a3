"""Rows of options in which every two values come together once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

Row = Mapping[str, str]
Pair = frozenset[tuple[str, str]]
Options = Mapping[str, tuple[str, ...]]
"""The values of each option, the plainest first."""


def plain_row(options: Options) -> Row:
    """Return the plainest value of every option."""
    return {name: values[0] for name, values in options.items()}


def pairwise_rows(options: Options) -> tuple[Row, ...]:
    """Return rows of options that together hold every pair of values of two options."""
    missing = {
        frozenset({(one, value), (other, beside)})
        for one, other in combinations(options, 2)
        for value in options[one]
        for beside in options[other]
    }
    rows: list[Row] = []
    while missing:
        row = _next_row(options, missing)
        missing -= pairs_of(row)
        rows.append(row)
    return tuple(rows)


def pairs_of(row: Row) -> set[Pair]:
    """Return the pairs of values that come together in a row."""
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


def _next_row(options: Options, missing: set[Pair]) -> Row:
    """Begin with a pair that is missing, and give every other option the value that adds most."""
    row = dict(min(missing, key=sorted))
    for name, values in options.items():
        if name not in row:
            row[name] = max(values, key=lambda value: len(missing & pairs_of({**row, name: value})))
    return {name: row[name] for name in options}
