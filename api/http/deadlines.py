"""Deadlines: a time limit for each request, with one timer for all of them.

All deadlines of a queue have the same length, so the one that started first expires first. A timer for each request
would cost more than many requests themselves.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Deadline:
    """Cancel the block under it at a time and raise TimeoutError, as `asyncio.timeout` does."""

    __slots__ = ("_cancelling_before", "_queue", "_task", "at", "is_expired")

    def __init__(self, queue: DeadlineQueue, at: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        self._queue = queue
        self._task = task
        self._cancelling_before = task.cancelling()
        self.at = at
        self.is_expired = False

    def remove_limit(self) -> None:
        """Remove the limit for the rest of the block."""
        self._queue.remove(self)

    def cancel_task(self) -> None:
        """Cancel the task."""
        self.is_expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._queue.remove(self)
        # If the task was cancelled for another reason, too, that cancellation goes on.
        if self.is_expired and self._task.uncancel() <= self._cancelling_before and kind is asyncio.CancelledError:
            raise TimeoutError from error


class DeadlineQueue:
    """The deadlines of a process.

    Args:
        seconds: The length of each deadline.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadlines: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start_deadline(self) -> Deadline:
        """Return a deadline of the current task that starts now."""
        loop = asyncio.get_running_loop()
        deadline = Deadline(self, loop.time() + self._seconds)
        self._deadlines[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.at, self._cancel_overdue_tasks)
        return deadline

    def remove(self, deadline: Deadline) -> None:
        """Forget a deadline that was met or lifted."""
        self._deadlines.pop(deadline, None)

    def _cancel_overdue_tasks(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for deadline in list(self._deadlines):
            if deadline.at > now:
                self._timer = loop.call_at(deadline.at, self._cancel_overdue_tasks)
                break
            self.remove(deadline)
            deadline.cancel_task()
