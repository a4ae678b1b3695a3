"""Options of a type and of those who use it."""

from __future__ import annotations

from functools import cache

from tests.worlds import pairwise
from tests.worlds.pairwise import Options, Row

OPTIONS: Options = {
    "hold": ("hold_tasks", "hold_task"),
    "wait": ("waits", "polls"),
    "limit": ("all", "1", "3"),
    "set": ("single", "batch"),
    "lease": ("with", "without", "demanded"),
    "create": ("single", "batch"),
    "name": ("own", "none"),
    "text": ("short", "empty", "long", "chinese"),
    "words": ("haulage", "original"),
    "stages": ("one", "two"),
    "pauses": ("doubling", "fixed", "none", "doubling from 2"),
    "retries": ("2", "0", "1"),
    "schedule_limit": ("100", "2"),
    "worker": ("plain", "library too"),
}


def plain_row() -> Row:
    """Return the plainest value of every option."""
    return pairwise.plain_row(OPTIONS)


@cache
def pairwise_rows() -> tuple[Row, ...]:
    """Return rows of options that together hold every pair of values of two options."""
    return pairwise.pairwise_rows(OPTIONS)
