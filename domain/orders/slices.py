"""Slices: their states, why one is read, and when one that failed is read again."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.faults import FaultRecord


class SliceState(StrEnum):
    """What became of a slice."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SPLIT = "split"


class RereadState(StrEnum):
    """How it stands with the last time that somebody asked for a complete slice again."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ReadPurpose(StrEnum):
    """Why a slice is read."""

    FIRST = "first"
    """To complete it."""
    AGAIN = "again"
    """Because somebody asked; a slice that has failed is completed by it, a complete one stays so."""
    SWEEP = "sweep"
    """Later, to find what the first reading missed."""


class ReadOutcome(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    SPLIT = "split"
    OVER = "over"
    """Somebody else has finished the slice, split it or skipped it."""


class ResumePoint(BaseModel):
    """Where a reading stopped: what it had been told by then."""

    model_config = ConfigDict(frozen=True)

    key: str
    older: str | None = None
    """What this one replaces; it may go when this one is taken up."""
    kept_at: AwareDatetime


WAITS_MAX: Final = 1_000
WAITED_MAX_SECONDS: Final = 2 * 86_400.0
"""So often and so long a slice may wait without being told anything more; then each wait is a failure. A daily quota
is there again within that time."""
WAIT_MAX_SECONDS: Final = 86_400.0
"""No wait is longer, whatever a platform asks for."""
EXPIRED_WAIT_MAX_SECONDS: Final = 60.0
"""Who waits for other credentials looks again at least so often."""
DOUBLINGS_MAX: Final = 20
CRASHES_MAX: Final = 10
"""So many workers may die with a slice before it is taken for the cause."""


class FailureKind(StrEnum):
    """Why an attempt did not come to its end."""

    FAILED = "failed"
    """It may go better."""
    REFUSED = "refused"
    """It will not, before somebody mends something."""
    EXPIRED = "expired"
    """The account's credentials are refused: it waits until others are, however long that takes."""
    TOLD_TO_WAIT = "told_to_wait"
    """By the platform or by our own limiter; that is no failure."""
    CRASHED = "crashed"
    """Its worker died, or was stopped."""


class AttemptFailure(BaseModel):
    """One attempt that did not come to its end."""

    trouble: FailureKind
    fault: FaultRecord
    wait_seconds: float = 0.0
    place: ResumePoint | None = None
    """Where the next attempt can go on."""
    gained: int = 0
    """Answers that it was told, more than the attempts before."""


class RetryState(BaseModel):
    """What a slice has behind it."""

    failures: int = 0
    waits: int = 0
    """In a row, without being told anything more."""
    waited_seconds: float = 0.0
    crashes: int = 0
    expired: int = 0
    """In a row."""

    def pause_after(self, setback: AttemptFailure, retries: int, retryintv: float) -> float | None:
        """How long to wait before the next attempt; None where there is none, and the slice has failed."""
        if setback.gained:
            self.waits, self.waited_seconds = 0, 0.0
        self.expired = self.expired + 1 if setback.trouble is FailureKind.EXPIRED else 0
        wait_seconds = min(setback.wait_seconds, WAIT_MAX_SECONDS)
        match setback.trouble:
            case FailureKind.REFUSED:
                return None
            case FailureKind.EXPIRED:
                doubled = max(retryintv, 0.1) * 2.0 ** min(self.expired - 1, DOUBLINGS_MAX)
                return min(EXPIRED_WAIT_MAX_SECONDS, doubled)
            case FailureKind.TOLD_TO_WAIT if self.waits < WAITS_MAX and self.waited_seconds < WAITED_MAX_SECONDS:
                self.waits, self.waited_seconds = self.waits + 1, self.waited_seconds + wait_seconds
                return max(wait_seconds, 0.1)
            case FailureKind.CRASHED if self.crashes < CRASHES_MAX:
                self.crashes += 1
                return 0.0
        self.failures += 1
        if self.failures > retries:
            return None
        return max(self.failures * retryintv, wait_seconds)
