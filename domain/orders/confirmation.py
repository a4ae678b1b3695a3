"""Confirmation: when a window counts as read, when it has to be read again, and how late orders were.

A settled window can lose rows while it is paged (an order is modified and moves on), but gains none. Pages are read in
a direction in which a row that leaves is read twice and never skipped. Where the platform has totals, they must agree:
a pass in which nothing moved has as many rows as both totals. Without totals, the passes to the last page and back must
not contradict each other. After any other pass the sets of ids decide: another pass must find no new order.

A page may be the answer to another request: a cache that ignores page tokens sends one of another window in its place,
and what was on the page itself is missing. Where the total is right by chance, only its orders show it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from domain.orders.windows import TimeWindow

PASSES_MAX: Final = 5
QUIET_PASSES_MAX: Final = 2
"""Consecutive passes without a new order, yet fewer orders than the total, after which the total is not believed."""


class PagingPassVerdict(StrEnum):
    """What follows from the passes so far."""

    CONFIRMED = "confirmed"
    AGAIN = "again"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class PagingPass:
    """One pass over all pages: the totals before and after it, its rows, and how many different orders they are."""

    before: int | None
    after: int | None
    rows: int
    distinct: int
    new: int
    """Orders that no earlier pass had listed."""
    repeated: int = 0
    """Orders that two pages on the way back listed: rows have moved."""
    is_unsorted: bool = False
    """Whether the platform sorted its pages anew between requests: any order may have been skipped."""
    is_doubtful: bool = False
    """Whether a page may be that of another request: it has an order from outside the window; or a token led to it,
    and it has none, or one of an earlier page."""

    @property
    def has_totals_equal_to_distinct_rows(self) -> bool:
        """Whether nothing moved: both totals are the number of rows, and no order was listed twice."""
        return self.before == self.after == self.rows == self.distinct

    @property
    def lists_all_counted(self) -> bool:
        """Whether the pass listed at least as many orders as the platform counted afterwards, where it counts."""
        return self.after is None or self.after <= self.distinct


@dataclass
class PagingPassHistory:
    """The passes over one window.

    Args:
        has_totals: Whether the platform counts the rows of a window.
        may_stir: Whether a row may change its place and stay in the window, as with a filter by creation time.
    """

    has_totals: bool
    may_stir: bool
    ids: set[str] = field(default_factory=set)
    done: list[PagingPass] = field(default_factory=list)

    def add_pass(
        self,
        total_before: int | None,
        order_ids: Collection[str],
        total_after: int | None,
        *,
        repeated: int = 0,
        is_unsorted: bool = False,
        is_doubtful: bool = False,
    ) -> PagingPassVerdict:
        """Add a pass with the ids that it listed, in their sequence, and return what follows."""
        distinct = set(order_ids)
        new = distinct - self.ids
        self.ids |= new
        self.done.append(
            PagingPass(
                total_before,
                total_after,
                len(order_ids),
                len(distinct),
                len(new),
                repeated,
                is_unsorted,
                is_doubtful,
            )
        )
        if self._is_confirmed():
            return PagingPassVerdict.CONFIRMED
        return (
            PagingPassVerdict.UNSTABLE
            if len(self.done) == PASSES_MAX or self._has_stopped_finding_orders()
            else PagingPassVerdict.AGAIN
        )

    def _is_confirmed(self) -> bool:
        last = self.done[-1]
        if self.has_totals and last.has_totals_equal_to_distinct_rows and not last.is_doubtful:
            return True
        if not self.may_stir and last.is_unsorted:
            return False
        is_first = len(self.done) == 1 and not last.repeated and not last.is_doubtful
        if is_first and not self.has_totals and not self.may_stir:
            return True
        return len(self.done) > 1 and not last.new and last.lists_all_counted

    def _has_stopped_finding_orders(self) -> bool:
        """Whether pass after pass lists the same orders, and the platform counts more."""
        return len(self.done) > QUIET_PASSES_MAX and not any(each.new for each in self.done[-QUIET_PASSES_MAX:])


def describe_unrest(window: TimeWindow, done: Sequence[PagingPass], page_size: int, largest: int) -> tuple[str, str]:
    """Return a sentence about a window that no pass has confirmed, and what may help.

    Args:
        largest: Orders of the largest page.
    """
    subject, last = f"The window {window.start.isoformat()} to {window.end.isoformat()}", done[-1]
    sentence = f"{subject} does not come to rest: " + "; ".join(
        f"{each.before} before, {each.distinct} told, {each.after} after" for each in done
    )
    hint = "A longer settle_lag or a shorter interval may help; else redo or skip the slice."
    rows = f"{len(done)} passes told {', '.join(f'{each.rows} rows of {each.distinct} orders' for each in done)}"
    if last.after is None:
        sentence = f"{subject} does not come to rest: {rows}"
    elif all(each.before == each.after == last.after for each in done):
        sentence = f"{subject} is counted as {last.after} orders each time, and does not come to rest: {rows}"
        hint = (
            "Nothing moves there, so that waiting does not help. Compare its record with the platform's documents: "
            "`total` may count other orders, `paging.first` may be another page, pages may need a parameter that "
            "sorts them, or `rows.id` may not tell orders apart."
        )
    if last.is_unsorted:
        unsorted = sum(each.is_unsorted for each in done)
        sentence = f"{subject} is told in another sequence each time it is paged: in {unsorted} of {len(done)} passes"
        hint = (
            "Orders may be passed by each time. Have the platform sort its pages by something that stays, by a "
            "parameter of its record; or declare its `total`, or its cursor, if it has one."
        )
    if 0 < largest < page_size:
        smaller_pages = (
            f"No page held more than {largest} orders, and {page_size} were asked for: if that is all that the "
            "platform tells on a page, say so in its record (`paging.size`)."
        )
        # Where less than a page is missing, it is most likely something else.
        is_page_missing = last.after is None or last.is_unsorted or last.after - last.distinct >= largest
        hint = smaller_pages if is_page_missing else f"{hint} {smaller_pages}"
    return f"{sentence}.", hint


LATENESS_MARGIN: Final = 1.5
LAG_STEP_SECONDS: Final = 10
LATENESS_KEPT: Final = timedelta(days=7)
"""Orders that were late longer ago than this are ignored."""


def compute_order_age_when_missed(modified_at: datetime, read_at: datetime) -> float:
    """Return the age of an order, by the platform's clock, at the first reading, which missed it."""
    return max(0.0, (read_at - modified_at).total_seconds())


def propose_settle_lag_if_too_short(settle_lag_seconds: int, oldest_missed_seconds: float | None) -> int | None:
    """Return a settle_lag that would have caught the late orders, with a margin; None where the one in force does.

    Args:
        settle_lag_seconds: The lag in force.
        oldest_missed_seconds: Age in seconds of the oldest order that was missed; None where none was.
    """
    if oldest_missed_seconds is None or oldest_missed_seconds < settle_lag_seconds:
        return None
    wanted = max(oldest_missed_seconds * LATENESS_MARGIN, settle_lag_seconds + LAG_STEP_SECONDS)
    return math.ceil(wanted / LAG_STEP_SECONDS) * LAG_STEP_SECONDS
