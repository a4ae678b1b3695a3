"""Flaws of any system's other side: their kinds, and how those of a world are drawn from its seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from tests.worlds import dice

DIAL_STEPS = 1_000
LASTS, MAY_PASS, PASSES = (False,), (False, True, True, True), (True,)


class See(StrEnum):
    """Who can know of a flaw."""

    WIRE = "k"  # it can be seen in what comes
    ASKED = "k+"  # it can be seen with one more request
    NOBODY = "u"


@dataclass(frozen=True)
class Kind:
    """A kind of flaw."""

    number: int
    """Of its row in the catalogue."""
    group: StrEnum
    """Of flaws of one group a world has at most one: they would say different things of the same part of an answer."""
    see: See = See.WIRE
    passes: tuple[bool, ...] = LASTS
    """Whether it passes, stays, or may do either."""


class Flaw(BaseModel):
    """One thing that goes wrong."""

    model_config = ConfigDict(frozen=True)

    name: str
    passes: bool
    """Whether asking again helps."""
    dial: int
    """How much, where, how often: each kind reads it in its own way."""

    @property
    def share(self) -> float:
        """The dial as a number from 0 up to 1."""
        return self.dial / DIAL_STEPS


def draw_flaws(
    seed: int, kinds: Mapping[str, Kind], groups: Sequence[StrEnum], family: Iterable[str] | None
) -> tuple[Flaw, ...]:
    """Draw the flaws of a world: a tenth of the worlds has none, half of them one, the others more.

    Args:
        seed: The world's.
        kinds: All flaws of the system.
        groups: All groups of these flaws; a world has at most one flaw of each.
        family: Flaws of which the world has one at least; by default it may have any, or none.
    """
    draw = dice.share(seed, "flaws")
    count = 0 if draw < 0.1 else 1 if draw < 0.6 else 2 if draw < 0.9 else 3
    chosen = dice.stream(seed, "groups").sample(groups, count)
    names = [dice.pick([name for name, kind in kinds.items() if kind.group is group], seed, group) for group in chosen]
    if family is not None:
        first = dice.pick(sorted(family), seed, "family")
        names = [first, *(name for name in names if kinds[name].group is not kinds[first].group)]
    return tuple(draw_flaw(seed, name, kinds[name]) for name in names)


def draw_flaw(seed: int, name: str, kind: Kind) -> Flaw:
    """Draw how a flaw is in a world."""
    return Flaw(
        name=name,
        passes=dice.pick(kind.passes, seed, name, "passes"),
        dial=dice.stream(seed, name, "dial").randrange(DIAL_STEPS),
    )
