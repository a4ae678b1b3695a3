"""Heartbeats: a running activity sends one every second, so that the engine soon notices a dead worker.

They are sent on the event loop. While a long call blocks the loop, a thread sends them instead: a busy process is not
dead, and what it has fetched need not be fetched again. The SDK itself abandons an activity five seconds after its
heartbeat timeout and does not see the thread's heartbeats: a call that blocks the loop for longer loses the activity.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.service import RPCError, RPCStatusCode

PAUSE_SECONDS: Final = 1.0
LATE_SECONDS: Final = 1.0
"""The thread sends a heartbeat that is this late; the shortest heartbeat timeout is more than twice as long."""
IDLE_SECONDS: Final = 30.0
"""The thread ends after this time without a running activity."""


class AttemptReplaced(Exception):
    """This attempt was taken for dead, as its worker was suspended: another one has gone on, or its workflow ended."""


async def require_current_attempt() -> None:
    """Ask the engine whether the current attempt still counts, right before it does what would harm a later one.

    A local activity is part of a task of its workflow, and is not asked for.

    Raises:
        AttemptReplaced: It does not.
    """
    asked = _HeartbeatTrackerAndLateSender.create(PAUSE_SECONDS)
    if asked is None or activity.info().is_local:
        return
    try:
        await asked.engine.get_async_activity_handle(task_token=asked.task_token).heartbeat()
    except AsyncActivityCancelledError:
        return  # The SDK cancels it as well.
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise AttemptReplaced(AttemptReplaced.__doc__) from None
        raise


@asynccontextmanager
async def send_heartbeats_during_block(
    details: Callable[[], Sequence[object]] = tuple, *, pause_seconds: float = PAUSE_SECONDS, at_once: bool = True
) -> AsyncIterator[None]:
    """Send heartbeats of the current activity while the body runs.

    Args:
        details: Returns the progress that each heartbeat reports.
        pause_seconds: The pause between heartbeats; several must fit into the heartbeat timeout.
        at_once: Whether the first is sent without a pause; otherwise a body shorter than the pause sends none.
    """
    standby = _HeartbeatTrackerAndLateSender.create(pause_seconds)

    async def send_heartbeats_forever() -> None:
        if not at_once:
            await asyncio.sleep(pause_seconds)
        while True:
            progress = details()
            activity.heartbeat(*progress)
            if standby is not None:
                standby.record_sent(progress)
            await asyncio.sleep(pause_seconds)

    task = asyncio.create_task(send_heartbeats_forever())
    if standby is not None:
        _standbys.add_and_start_thread(standby)
    try:
        yield
    finally:
        if standby is not None:
            _standbys.discard(standby)
        task.cancel()
        # To await the task itself would take a cancellation of the activity that comes meanwhile for the task's own.
        await asyncio.wait([task])
    # An error of the body says more, and is on its way already.
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


@dataclass(eq=False)
class _HeartbeatTrackerAndLateSender:
    """Sends the heartbeats of an activity whose event loop is blocked."""

    engine: Client
    task_token: bytes
    pause_seconds: float
    sent_at: float = field(default_factory=time.monotonic)
    details: Sequence[object] = ()

    @classmethod
    def create(cls, pause_seconds: float) -> _HeartbeatTrackerAndLateSender | None:
        """Return one for the current activity; None without an engine, as in tests of a single activity."""
        try:
            return cls(activity.client(), activity.info().task_token, pause_seconds)
        except RuntimeError:
            return None

    @property
    def is_late(self) -> bool:
        """Whether a heartbeat should have been sent by now."""
        return time.monotonic() - self.sent_at > self.pause_seconds + LATE_SECONDS

    def record_sent(self, details: Sequence[object]) -> None:
        """Record a heartbeat that the loop has sent."""
        self.sent_at, self.details = time.monotonic(), details

    async def send_one(self) -> None:
        """Send one heartbeat. The loop finds out by itself later that the activity was cancelled meanwhile."""
        self.sent_at = time.monotonic()
        with suppress(Exception):
            await self.engine.get_async_activity_handle(task_token=self.task_token).heartbeat(*self.details)


class _LateHeartbeatThread:
    """The activities of this process that send heartbeats, and the thread that sends late ones."""

    def __init__(self) -> None:
        self._all: set[_HeartbeatTrackerAndLateSender] = set()
        self._lock = threading.Lock()
        self._is_running = False

    def add_and_start_thread(self, standby: _HeartbeatTrackerAndLateSender) -> None:
        """Add an activity; start the thread if it does not run."""
        with self._lock:
            self._all.add(standby)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="heartbeats", daemon=True).start()

    def discard(self, standby: _HeartbeatTrackerAndLateSender) -> None:
        """Remove an activity that has ended."""
        with self._lock:
            self._all.discard(standby)

    def _run(self) -> None:
        asyncio.run(self._send_late_heartbeats_until_idle())

    async def _send_late_heartbeats_until_idle(self) -> None:
        needed_at = time.monotonic()
        while True:
            await asyncio.sleep(PAUSE_SECONDS / 2)
            with self._lock:
                if self._all:
                    needed_at = time.monotonic()
                elif time.monotonic() - needed_at > IDLE_SECONDS:
                    self._is_running = False
                    return
                late = [standby for standby in self._all if standby.is_late]
            for standby in late:
                await standby.send_one()


_standbys = _LateHeartbeatThread()
