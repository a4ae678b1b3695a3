"""Prefetch: how many tasks wait in a worker for their turn, so that none of its places idles while more are fetched."""

from __future__ import annotations

import time

AHEAD_SECONDS = 0.25
"""What is done in this time is fetched ahead: several times what a hold takes, and nothing for tasks of minutes."""
TASKS_MAX = 1_000


class Prefetch:
    """Measures how fast tasks are done.

    Args:
        concurrency: How many run at a time: so many may wait at least.
        fixed: How many may wait, whatever is measured.
    """

    def __init__(self, concurrency: int, fixed: int | None) -> None:
        self._least = concurrency
        self._fixed = fixed
        self._done = 0
        self._since = time.monotonic()
        self._size = 0

    def note_done(self) -> None:
        """Count a task that is done."""
        self._done += 1

    def size(self) -> int:
        """How many tasks may wait."""
        if self._fixed is not None:
            return self._fixed
        elapsed = time.monotonic() - self._since
        if elapsed >= AHEAD_SECONDS:
            self._size = min(TASKS_MAX, round(self._done / elapsed * AHEAD_SECONDS))
            self._done, self._since = 0, time.monotonic()
        return max(self._least, self._size)
