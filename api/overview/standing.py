"""Standings: what one project has in one room, and how several add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from api.overview.answers import Trouble


@dataclass(frozen=True, slots=True)
class Pile:
    """How many there are of a kind, and since when the first of them."""

    count: int = 0
    oldest_at: datetime | None = None

    def __add__(self, other: Pile) -> Pile:
        """Both together."""
        moments = [each for each in (self.oldest_at, other.oldest_at) if each is not None]
        return Pile(self.count + other.count, min(moments, default=None))

    def seconds(self, now: datetime) -> float | None:
        """For how long the first of them has been there."""
        return None if self.oldest_at is None else max(0.0, (now - self.oldest_at).total_seconds())


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is to do."""

    running: Pile = Pile()
    waiting: Pile = Pile()
    failed: Pile = Pile()
    concerns: Counter[Trouble] = field(default_factory=Counter)

    def __add__(self, other: Standing) -> Standing:
        """Both together."""
        return Standing(
            self.running + other.running,
            self.waiting + other.waiting,
            self.failed + other.failed,
            self.concerns + other.concerns,
        )


Standings: TypeAlias = Mapping[str, Standing]
"""By project."""


def together(parts: Iterable[Standing]) -> Standing:
    """All of them."""
    return sum(parts, Standing())


def merged(*several: Standings) -> Standings:
    """The same projects from several looks."""
    projects = {project for each in several for project in each}
    return {project: together(each[project] for each in several if project in each) for project in projects}
