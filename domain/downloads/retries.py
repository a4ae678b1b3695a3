"""Asking for a page again: how often, after which pauses, and when an answer is wrong for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from domain.faults import FaultRecord, SourceFault

BUSY_PAUSE_MAX_SECONDS: Final = 60.0
TIMEOUTS_MAX: Final = 2
"""A time-out is a long wait already."""
WRONG_ANSWERS_MAX: Final = 3
"""So often a page is answered wrongly, each time in another way."""
_FINAL_WHEN_REPEATED: Final = frozenset({"source_cut_off"})
"""Faults that may pass, unless they come twice in a row exactly alike."""


class RetryRules(BaseModel):
    """How patient we are with a source."""

    model_config = ConfigDict(frozen=True)

    retries: int
    """How often a page is asked for again where the trouble may pass by itself."""
    pause_seconds: float
    """Before the first retry; it doubles."""
    retry_after_max_seconds: float = 300.0
    """However long a source asks us to wait, it is asked again after so long."""


class PageTries(BaseModel):
    """What came of asking for one page so far."""

    page: int
    page_size: int
    table: int = 0
    """Which of several tables it is a page of."""
    counted: int = 0
    """Tries that failed. Those that the source asked us to make later are not among them."""
    waits: int = 0
    """How often the source asked us to come later."""
    timeouts: int = 0
    """How often its answer took too long."""
    fault: FaultRecord | None = None
    """What was wrong with the last one."""

    @property
    def key(self) -> tuple[int, int, int]:
        """Which table, page and page size was asked for: tries of one question say nothing of another."""
        return self.table, self.page, self.page_size

    @property
    def total(self) -> int:
        """All tries."""
        return self.counted + self.waits

    def add_failure(self, fault: SourceFault) -> PageTries:
        """The same with one more try, which failed."""
        is_wait = is_asked_to_wait(fault)
        return self.model_copy(
            update={
                "counted": self.counted + (not is_wait),
                "waits": self.waits + is_wait,
                "timeouts": self.timeouts + is_timeout(fault),
                "fault": fault.record,
            }
        )

    def compute_pause(self, fault: SourceFault, rules: RetryRules) -> float | None:
        """How long to wait before the next try; None where the fault is there to stay.

        Args:
            fault: What was wrong with the try that `after` has not counted yet.
            rules: How patient we are.
        """
        pause: float = rules.pause_seconds * 2**self.counted
        if is_asked_to_wait(fault):
            # To wait costs nothing of what a page may be tried.
            growing: float = min(rules.pause_seconds * 2 ** min(self.waits, 10), BUSY_PAUSE_MAX_SECONDS)
            return min(max(growing, fault.retry_after_seconds or 0.0), rules.retry_after_max_seconds)
        is_same = self.fault == fault.record
        if not fault.transient:
            again = fault.doubtful and not is_same and self.counted + 1 < WRONG_ANSWERS_MAX
            return rules.pause_seconds if again else None
        if is_same and fault.record.code in _FINAL_WHEN_REPEATED:
            return None
        if is_timeout(fault) and self.timeouts + 1 >= TIMEOUTS_MAX:
            return None
        return pause if self.counted < rules.retries else None

    def build_final_fault(self, fault: SourceFault) -> SourceFault:
        """What the user is told once a fault is there to stay."""
        record, count = fault.record, self.total + 1
        times = "" if count == 1 else f" failed {count} times; at last" if count > 2 else " failed twice; at last"
        return SourceFault(
            record.code, f"Page {self.page}{times}: {record.message}", record.hint, transient=fault.transient
        )


def merge_tries(known: Sequence[PageTries], newer: PageTries) -> list[PageTries]:
    """Return the tries of all questions, with those of one replaced.

    A probe asks several questions anew after each wait, and so does a fetcher at an empty page, at new columns and at
    the end. If only the tries of the last one were kept, two questions that fail in turns would reset each other's
    counts without end.
    """
    return [tries for tries in known if tries.key != newer.key] + [newer]


class RetryWait(BaseModel):
    """A page is asked for again after a while."""

    tries: PageTries
    seconds: float


def is_timeout(fault: SourceFault) -> bool:
    """Whether the answer took too long, which fewer rows may mend."""
    return fault.record.code == "source_timeout"


def is_asked_to_wait(fault: SourceFault) -> bool:
    """Whether the source asks us to come later, which says nothing of the page."""
    return fault.transient and (fault.is_busy or fault.retry_after_seconds is not None)
