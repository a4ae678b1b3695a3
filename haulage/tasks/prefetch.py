"""Number of tasks that a worker holds ahead, so that it is never idle while it requests more."""

from __future__ import annotations

import time

AHEAD_SECONDS = 0.25
"""The worker holds as many tasks ahead as it finishes in this time, several times the duration of a hold."""
TASKS_MAX = 1_000


class PrefetchSizeEstimator:
    """Computes the number of tasks to hold ahead from the rate at which tasks finish.

    Args:
        concurrency: Number of tasks that run at a time, and the minimum to hold ahead.
        fixed: Number of tasks to hold ahead regardless of the rate; None measures it.
    """

    def __init__(self, concurrency: int, fixed: int | None) -> None:
        self._minimum = concurrency
        self._fixed = fixed
        self._done = 0
        self._since = time.monotonic()
        self._size = 0

    def count_finished_task(self) -> None:
        """Count a finished task."""
        self._done += 1

    def get_size(self) -> int:
        """Return how many tasks to hold ahead."""
        if self._fixed is not None:
            return self._fixed
        elapsed = time.monotonic() - self._since
        if elapsed >= AHEAD_SECONDS:
            self._size = min(TASKS_MAX, round(self._done / elapsed * AHEAD_SECONDS))
            self._done, self._since = 0, time.monotonic()
        return max(self._minimum, self._size)
