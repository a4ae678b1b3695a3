"""Deadlines: a time limit for each request, and a shorter one while a component hangs, with one timer for each.

All deadlines of a queue have the same length, so the one that started first expires first. A timer for each request
would cost more than many requests themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from types import TracebackType
from typing import Self

from infra.outages import Component, ComponentHangs

FindHanging = Callable[[], Awaitable[Component | None]]
"""Returns a component that does not answer."""

CHECKED_AFTER_SECONDS = 3.0
"""A request that has taken so long is ended where a component hangs."""
CHECK_PAUSE_SECONDS = 1.0
HANGING_CHECKS_MAX = 2
"""A request is answered when a component hung at so many checks in a row: a single one may be a busy moment."""


async def report_no_hanging_component() -> Component | None:
    """Return None: the check of a queue whose blocks use no component."""
    return None


class CancellingDeadline:
    """Cancel the block under it at a time and raise TimeoutError, as `asyncio.timeout` does.

    Where a component hangs meanwhile, this happens earlier, and ComponentHangs is raised.
    """

    __slots__ = ("_cancelling_before", "_queue", "_task", "at", "hanging", "hanging_checks", "is_expired")

    def __init__(self, queue: DeadlineQueue, loop: asyncio.AbstractEventLoop, at: float) -> None:
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        self._queue = queue
        self._task = task
        self._cancelling_before = task.cancelling()
        self.at = at
        self.is_expired = False
        self.hanging: Component | None = None
        """The component that hung at the last check."""
        self.hanging_checks = 0
        """At how many checks in a row one hung."""

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
            if self.hanging_checks >= HANGING_CHECKS_MAX and self.hanging is not None:
                raise ComponentHangs(self.hanging) from error
            raise TimeoutError from error


class DeadlineQueue:
    """The deadlines of a process.

    Args:
        seconds: The length of each deadline.
        find_hanging: Returns a component that hangs.
        checked_after_seconds: How long a block takes before this is asked.
    """

    def __init__(
        self,
        seconds: float,
        find_hanging: FindHanging = report_no_hanging_component,
        checked_after_seconds: float = CHECKED_AFTER_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._find_hanging = find_hanging
        self._checked_after_seconds = checked_after_seconds
        self._checks: asyncio.Task[None] | None = None
        self._deadlines: dict[CancellingDeadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start_deadline(self) -> CancellingDeadline:
        """Return a deadline of the current task that starts now."""
        loop = asyncio.get_running_loop()
        deadline = CancellingDeadline(self, loop, loop.time() + self._seconds)
        self._deadlines[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.at, self._cancel_overdue_tasks)
        if self._checks is None:
            # Not in the context of this request, whose id is no field of what the checks log.
            self._checks = loop.create_task(self._cancel_blocks_of_hanging_component_until_idle(), context=Context())
        return deadline

    def remove(self, deadline: CancellingDeadline) -> None:
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

    async def _cancel_blocks_of_hanging_component_until_idle(self) -> None:
        """Look again and again whether a component hangs, and cancel the blocks that wait for it."""
        loop = asyncio.get_running_loop()
        try:
            while self._deadlines:
                await asyncio.sleep(min(CHECK_PAUSE_SECONDS, self._checked_after_seconds))
                latest = loop.time() + self._seconds - self._checked_after_seconds
                late = [each for each in self._deadlines if each.at <= latest]
                if late:
                    self._cancel_late_blocks_after_repeated_hanging_checks(late, await self._find_hanging())
        finally:
            self._checks = None

    def _cancel_late_blocks_after_repeated_hanging_checks(
        self, late: list[CancellingDeadline], hanging: Component | None
    ) -> None:
        for deadline in late:
            deadline.hanging = hanging
            deadline.hanging_checks = deadline.hanging_checks + 1 if hanging else 0
            if deadline.hanging_checks >= HANGING_CHECKS_MAX and deadline in self._deadlines:
                self.remove(deadline)
                deadline.cancel_task()
