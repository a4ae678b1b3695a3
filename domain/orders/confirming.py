"""Confirming: when a window counts as read, and when it has to be read once more.

A window that has settled can lose rows while it is paged (an order is changed again and moves on), but gains none. A
pass is confirmed where the platform's total is the same before and after it, and as many different orders were told.
Otherwise another pass is made. Where orders keep leaving, totals never agree; then it counts that two passes in a row
told nothing new, and at least as many orders as are left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

PASSES_MAX: Final = 5
QUIET_PASSES: Final = 2


class Verdict(StrEnum):
    """What follows from the passes so far."""

    CONFIRMED = "confirmed"
    AGAIN = "again"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Pass:
    """One reading of all pages: the totals around it, and how many different orders it told."""

    before: int | None
    after: int | None
    distinct: int
    new: int
    """Orders that no pass before had told."""

    @property
    def agrees(self) -> bool:
        """Whether the totals are the number of orders told."""
        return self.before == self.after == self.distinct

    @property
    def only_left(self) -> bool:
        """Whether orders left, none came, and all that stayed were told."""
        return self.before is not None and self.after is not None and self.after <= min(self.before, self.distinct)


@dataclass
class Passes:
    """The readings of one window.

    Args:
        has_totals: Whether the platform says how many rows a window holds.
        moves: Whether rows that leave move those that follow to other pages.
    """

    has_totals: bool
    moves: bool
    ids: set[str] = field(default_factory=set)
    done: list[Pass] = field(default_factory=list)

    def add(self, before: int | None, ids: Collection[str], after: int | None) -> Verdict:
        """Count another pass."""
        new = set(ids) - self.ids
        self.ids |= new
        self.done.append(Pass(before, after, len(set(ids)), len(new)))
        if self._is_confirmed():
            return Verdict.CONFIRMED
        return Verdict.AGAIN if len(self.done) < PASSES_MAX else Verdict.UNSTABLE

    def _is_confirmed(self) -> bool:
        last = self.done[-1]
        if not self.has_totals:
            return not self.moves or self._is_quiet()
        return last.agrees or (self._is_quiet() and last.only_left)

    def _is_quiet(self) -> bool:
        """Whether two passes in a row, after the first, told nothing new."""
        return len(self.done) > QUIET_PASSES and not any(each.new for each in self.done[-QUIET_PASSES:])
