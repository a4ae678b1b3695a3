"""Queues: which messages a cycle takes, and in which steps they are applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final, NamedTuple, TypeAlias

WORTHWHILE: Final = 100
"""Messages below which an activity of their own costs more than it gains."""

Step: TypeAlias = list[list[int]]
"""What one activity applies: groups one after the other, the messages of a group side by side."""


class Pair(NamedTuple):
    """A swap, and what it exchanges."""

    id: int
    uprn_1: int
    uprn_2: int


def room(waiting: Sequence[int], threshold: int, floor: int = 0) -> list[int]:
    """How many messages of each topic a cycle takes; who comes first in the order of topics fills it first.

    Args:
        waiting: How many of each topic could be taken.
        threshold: How many a cycle holds.
        floor: So many of every topic get in, if they are there, whatever comes before them.
    """
    taken: list[int] = []
    for place, count in enumerate(waiting):
        kept_free = sum(min(floor, later) for later in waiting[place + 1 :])
        taken.append(min(count, max(0, threshold - sum(taken) - kept_free)))
    return taken


def groups(swaps: Iterable[Pair]) -> list[list[int]]:
    """Swaps in groups without a common UPRN: whoever shares one with an earlier swap stands in a later group.

    Swaps without a common UPRN may change places, so the groups in their order do what the swaps in theirs do.
    """
    found: list[list[int]] = []
    depths: dict[int, int] = {}
    for swap in swaps:
        depth = max(depths.get(swap.uprn_1, 0), depths.get(swap.uprn_2, 0))
        if depth == len(found):
            found.append([])
        found[depth].append(swap.id)
        depths[swap.uprn_1] = depths[swap.uprn_2] = depth + 1
    return found


def in_order(groups: Iterable[Sequence[int]], size: int) -> list[Step]:
    """Steps of so many messages at most, which follow each other."""
    steps: list[Step] = []
    left = 0
    for group in groups:
        start = 0
        while start < len(group):
            if not left:
                steps.append([])
                left = size
            part = group[start : start + left]
            steps[-1].append(list(part))
            start, left = start + len(part), left - len(part)
    return steps


def side_by_side(ids: Sequence[int], size: int, at_a_time: int) -> list[Step]:
    """Steps of so many messages at most, of which no two touch the same address.

    They are alike in length, and no fewer than run at a time, if there is enough for each.
    """
    steps = max(ceil(len(ids) / size), min(at_a_time, len(ids) // WORTHWHILE), 1)
    length = max(1, ceil(len(ids) / steps))
    return [[list(ids[start : start + length])] for start in range(0, len(ids), length)]
