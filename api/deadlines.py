"""Deadlines: how long a request may take, with one timer for all of them.

All have the same time, so that the one that began first is over first. A timer for each would cost more than to answer
many of them.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Deadline:
    """What is done under it is cancelled when its time is over, and raises TimeoutError, as under `asyncio.timeout`."""

    __slots__ = ("_among", "_before", "_task", "at", "is_over")

    def __init__(self, among: Deadlines, at: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is one of a task, and none is running")
        self._among = among
        self._task = task
        self._before = task.cancelling()
        self.at = at
        self.is_over = False

    def lift(self) -> None:
        """From here on there is no limit."""
        self._among.forget(self)

    def expire(self) -> None:
        """The time is over."""
        self.is_over = True
        self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._among.forget(self)
        # Somebody else may have cancelled the task as well: then it ends as they want.
        if self.is_over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error


class Deadlines:
    """Those of one process.

    Args:
        seconds: How long each lasts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Deadline:
        """One for the current task, from now on."""
        loop = asyncio.get_running_loop()
        deadline = Deadline(self, loop.time() + self._seconds)
        self._open[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.at, self._look)
        return deadline

    def forget(self, deadline: Deadline) -> None:
        """It is met, or does not count any more."""
        self._open.pop(deadline, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for deadline in list(self._open):
            if deadline.at > now:
                self._timer = loop.call_at(deadline.at, self._look)
                break
            self.forget(deadline)
            deadline.expire()
