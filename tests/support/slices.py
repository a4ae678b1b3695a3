"""Helpers for tests of slices."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from domain.orders.windows import TimeWindow


def is_gapless(windows: Iterable[TimeWindow]) -> bool:
    """Whether windows follow each other without a gap and without an overlap."""
    ordered = sorted(windows, key=lambda each: each.start)
    return all(before.end == after.start for before, after in pairwise(ordered))
