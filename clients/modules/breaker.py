"""A circuit breaker: who failed several times in a row is left alone for a while, then tried by one call."""

from __future__ import annotations

from collections.abc import Callable


class Breaker:
    """Counts failures in a row.

    Args:
        failures: So many open it.
        seconds: So long it stays open.
        now: A clock that never runs backwards.
    """

    def __init__(self, failures: int, seconds: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._now = now
        self._failures = 0
        self._open_until = 0.0

    def admits(self) -> bool:
        """Whether a call may go out. When the time of leaving alone is over, the first to ask may, and is the test."""
        if self._failures < self._limit:
            return True
        if self._now() < self._open_until:
            return False
        self._open_until = self._now() + self._seconds
        return True

    def succeeded(self) -> None:
        """It answered."""
        self._failures = 0

    def failed(self) -> None:
        """It did not."""
        self._failures += 1
        if self._failures >= self._limit:
            self._open_until = self._now() + self._seconds
