"""Confirming: when a window counts as read, and when it has to be read once more.

A window that has settled can lose rows while it is paged (an order is changed again and moves on), but gains none.
Pages are read so that what leaves is told twice and never skipped. Where the platform tells totals, they have to bear
that out: a pass in which nothing moved agrees with them to the row. Where it tells none, the way to the last page and
the way back must not contradict each other. After any other pass the sets of ids count: another one must tell no order
that was not told before.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

PASSES_MAX: Final = 5
QUIET_PASSES_MAX: Final = 2
"""So many passes in a row may tell nothing new and yet fewer orders than the total; then the total is not believed."""


class PassVerdict(StrEnum):
    """What follows from the passes so far."""

    CONFIRMED = "confirmed"
    AGAIN = "again"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class PagingPass:
    """One reading of all pages: the totals around it, how many rows it told, and of how many different orders."""

    before: int | None
    after: int | None
    rows: int
    distinct: int
    new: int
    """Orders that no pass before had told."""
    told_again: int = 0
    """Orders that two pages on the way back told: rows have moved."""
    is_unsorted: bool = False
    """Whether pages were sorted anew while they were read: any order may have been passed by."""

    @property
    def is_still(self) -> bool:
        """Whether nothing moved: the totals are the number of rows, and no order was told twice."""
        return self.before == self.after == self.rows == self.distinct

    @property
    def has_all(self) -> bool:
        """Whether it told as many orders as the platform says that are left, where it says so."""
        return self.after is None or self.after <= self.distinct


@dataclass
class PassHistory:
    """The readings of one window.

    Args:
        has_totals: Whether the platform says how many rows a window holds.
        may_stir: Whether a row may change its place and stay in the window, as where it is asked for by its creation.
    """

    has_totals: bool
    may_stir: bool
    ids: set[str] = field(default_factory=set)
    done: list[PagingPass] = field(default_factory=list)

    def add(
        self,
        before: int | None,
        told: Collection[str],
        after: int | None,
        *,
        told_again: int = 0,
        is_unsorted: bool = False,
    ) -> PassVerdict:
        """Count another pass, which told these ids in turn."""
        new = set(told) - self.ids
        self.ids |= new
        self.done.append(PagingPass(before, after, len(told), len(set(told)), len(new), told_again, is_unsorted))
        if self._is_confirmed():
            return PassVerdict.CONFIRMED
        return PassVerdict.UNSTABLE if len(self.done) == PASSES_MAX or self._is_contradicted() else PassVerdict.AGAIN

    def _is_confirmed(self) -> bool:
        last = self.done[-1]
        if self.has_totals and last.is_still:
            return True
        if not self.may_stir and last.is_unsorted:
            return False
        if not self.has_totals and not self.may_stir and len(self.done) == 1 and not last.told_again:
            return True
        return len(self.done) > 1 and not last.new and last.has_all

    def _is_contradicted(self) -> bool:
        """Whether pass after pass tells the same orders, and the platform says that there are more."""
        return len(self.done) > QUIET_PASSES_MAX and not any(each.new for each in self.done[-QUIET_PASSES_MAX:])


LATENESS_MARGIN: Final = 1.5
LAG_STEP_SECONDS: Final = 10
LATENESS_KEPT: Final = timedelta(days=7)
"""What was late longer ago proposes nothing any more."""


def compute_lateness_seconds(modified_at: datetime, read_at: datetime) -> float:
    """How old an order was, by the platform's clock, when the first reading still missed it."""
    return max(0.0, (read_at - modified_at).total_seconds())


def propose_settle_lag(settle_lag_seconds: int, oldest: float | None) -> int | None:
    """A settle_lag that would have caught what was late, with a margin; none where the one in force does.

    Args:
        settle_lag_seconds: The lag in force.
        oldest: How old the oldest order was that had not shown up in time; None where all had.
    """
    if oldest is None or oldest < settle_lag_seconds:
        return None
    wanted = max(oldest * LATENESS_MARGIN, settle_lag_seconds + LAG_STEP_SECONDS)
    return math.ceil(wanted / LAG_STEP_SECONDS) * LAG_STEP_SECONDS
