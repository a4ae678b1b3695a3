"""Retries of page requests: how often, after which pauses, and when an answer is final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from domain.downloads.models import DownloadTrouble
from domain.faults import FaultRecord, SourceFault

BUSY_PAUSE_MAX_SECONDS: Final = 60.0
TIMEOUTS_MAX: Final = 2
"""A timeout is a long wait already, so it is retried once only."""
WRONG_ANSWERS_MAX: Final = 3
"""Wrong answers to one request, each in another way, after which it fails."""
_FINAL_WHEN_REPEATED: Final = frozenset({"source_cut_off"})
"""Faults that may pass, but are final if they come twice in a row and are equal."""

RUN_ENDED_FAULT: Final = FaultRecord(
    code="run_ended",
    message="The run was ended from outside, before the download was done.",
    hint="Start the download again; if you do not know why it was ended, ask the operator.",
)


class PageRetryRules(BaseModel):
    """Limits of retries."""

    model_config = ConfigDict(frozen=True)

    retries: int
    """Retries of faults that may pass."""
    pause_seconds: float
    """Pause before the first retry; it doubles with each."""
    retry_after_max_seconds: float = 300.0
    """Upper bound of a wait that a source asks for."""


class PageAttempts(BaseModel):
    """The failed attempts of one page request so far."""

    page: int
    page_size: int
    table: int = 0
    """Number of the table that the page belongs to."""
    counted: int = 0
    """Failed attempts, without those that the source asked to repeat later."""
    waits: int = 0
    """Attempts that the source asked to repeat later."""
    timeouts: int = 0
    """Attempts that timed out."""
    fault: FaultRecord | None = None
    """The fault of the last attempt."""

    @property
    def request_key(self) -> tuple[int, int, int]:
        """Table, page and page size: what identifies the request."""
        return self.table, self.page, self.page_size

    @property
    def total_attempts(self) -> int:
        """All attempts."""
        return self.counted + self.waits

    def add_failure(self, fault: SourceFault) -> PageAttempts:
        """Return these attempts with one more failure."""
        is_wait = is_source_asking_to_wait(fault)
        return self.model_copy(
            update={
                "counted": self.counted + (not is_wait),
                "waits": self.waits + is_wait,
                "timeouts": self.timeouts + is_timeout(fault),
                "fault": fault.record,
            }
        )

    def compute_pause(self, fault: SourceFault, rules: PageRetryRules) -> float | None:
        """Return the pause in seconds before the next attempt; None if the fault is final.

        Args:
            fault: The fault of the last attempt, which is not counted yet.
            rules: The limits.
        """
        pause: float = rules.pause_seconds * 2**self.counted
        if is_source_asking_to_wait(fault):
            # A wait that the source asks for spends no retry.
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

    def build_fault_with_attempt_count(self, fault: SourceFault) -> SourceFault:
        """Build the fault that the user sees after the last attempt."""
        record, count = fault.record, self.total_attempts + 1
        times = "" if count == 1 else f" failed {count} times; at last" if count > 2 else " failed twice; at last"
        return SourceFault(
            record.code, f"Page {self.page}{times}: {record.message}", record.hint, transient=fault.transient
        )


def replace_request_attempts(known: Sequence[PageAttempts], newer: PageAttempts) -> list[PageAttempts]:
    """Return the attempts of all requests, with those of one replaced.

    A probe repeats several requests after each wait, and so does a fetcher at an empty page, at new columns and at the
    end. If only the attempts of the last one were kept, two requests that fail in turns would reset each other's counts
    without end.
    """
    return [tries for tries in known if tries.request_key != newer.request_key] + [newer]


class RetryWait(BaseModel):
    """A page request is repeated after a wait."""

    tries: PageAttempts
    seconds: float


def build_wait_for_sealing_key(fault: FaultRecord, table: int, known: Sequence[PageAttempts]) -> RetryWait:
    """Build the wait of a table that nothing can be requested for, as no key opens the address of its source."""
    no_tries = PageAttempts(table=table, page=0, page_size=0)
    tries = next((each for each in known if each.request_key == no_tries.request_key), no_tries)
    seconds = min(2.0 ** min(tries.waits, 10), BUSY_PAUSE_MAX_SECONDS)
    return RetryWait(tries=tries.model_copy(update={"waits": tries.waits + 1, "fault": fault}), seconds=seconds)


def is_timeout(fault: SourceFault) -> bool:
    """Return whether the answer timed out, which fewer rows may mend."""
    return fault.record.code == "source_timeout"


def is_source_asking_to_wait(fault: SourceFault) -> bool:
    """Return whether the source asked to be called later, which says nothing about the page."""
    return fault.transient and (fault.is_busy or fault.retry_after_seconds is not None)


def build_time_limit_fault(seconds: int, trouble: DownloadTrouble | None) -> FaultRecord:
    """Build the fault of a download that was not done in time; it says what that waited for at last."""
    at_last = f" At last it waited, after {trouble.attempts} attempts: {trouble.message}" if trouble else ""
    return FaultRecord(
        code="max_exec_time",
        message=f"The download was not done within {seconds:,} s, its `max_exec_time`.{at_last}",
        hint="Ask for less, give it more time, or retry soon: what is fetched already is kept for a while.",
        retryable=True,
    )


def build_columns_changing_fault(names: list[str]) -> FaultRecord:
    """Build the fault of a source whose rows have new keys at every reading."""
    return FaultRecord(
        code="source_columns_changing",
        message=f"New keys keep turning up at every reading of the source; at last: {', '.join(names[:20])}.",
        hint="Give every row the same keys, with null where there is no value.",
    )
