"""Retrying: how often a slice is read again, and after which pause."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel

from domain.faults import FaultRecord
from domain.orders.places import Place

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


class Trouble(StrEnum):
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


class Setback(BaseModel):
    """One attempt that did not come to its end."""

    trouble: Trouble
    fault: FaultRecord
    wait_seconds: float = 0.0
    place: Place | None = None
    """Where the next attempt can go on."""
    gained: int = 0
    """Answers that it was told, more than the attempts before."""


class Ladder(BaseModel):
    """What a slice has behind it."""

    failures: int = 0
    waits: int = 0
    """In a row, without being told anything more."""
    waited_seconds: float = 0.0
    crashes: int = 0
    expired: int = 0
    """In a row."""

    def pause_after(self, setback: Setback, retries: int, retryintv: float) -> float | None:
        """How long to wait before the next attempt; None where there is none, and the slice has failed."""
        if setback.gained:
            self.waits, self.waited_seconds = 0, 0.0
        self.expired = self.expired + 1 if setback.trouble is Trouble.EXPIRED else 0
        wait_seconds = min(setback.wait_seconds, WAIT_MAX_SECONDS)
        match setback.trouble:
            case Trouble.REFUSED:
                return None
            case Trouble.EXPIRED:
                doubled = max(retryintv, 0.1) * 2.0 ** min(self.expired - 1, DOUBLINGS_MAX)
                return min(EXPIRED_WAIT_MAX_SECONDS, doubled)
            case Trouble.TOLD_TO_WAIT if self.waits < WAITS_MAX and self.waited_seconds < WAITED_MAX_SECONDS:
                self.waits, self.waited_seconds = self.waits + 1, self.waited_seconds + wait_seconds
                return max(wait_seconds, 0.1)
            case Trouble.CRASHED if self.crashes < CRASHES_MAX:
                self.crashes += 1
                return 0.0
        self.failures += 1
        if self.failures > retries:
            return None
        return max(self.failures * retryintv, wait_seconds)
