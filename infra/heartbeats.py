"""Heartbeats: a running activity says every second that it lives, so that the engine soon notices when it does not.

It says so on the process' loop. Where something long keeps the loop from turning, a thread of its own says it instead:
a process that is busy is not dead, and what it has fetched need not be fetched again. The SDK itself gives a step up
five seconds after its time-out, and does not hear of what the thread says: who blocks the loop for longer is too late.
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
from temporalio.client import Client

PAUSE_SECONDS: Final = 1.0
LATE_SECONDS: Final = 1.0
"""A beat that is so late is sent by the thread; the shortest time-out of our steps is more than twice as long."""
IDLE_SECONDS: Final = 30.0
"""The thread ends when nobody has needed it for so long."""


@asynccontextmanager
async def beating(
    details: Callable[[], Sequence[object]] = tuple, *, pause_seconds: float = PAUSE_SECONDS, at_once: bool = True
) -> AsyncIterator[None]:
    """Beat while the body runs.

    Args:
        details: How far it is, asked at each beat.
        pause_seconds: Between two beats; several must fit the heartbeat's time-out.
        at_once: Whether the first comes without a pause; who is done within it then costs the engine none.
    """
    standby = _Standby.of_this_activity(pause_seconds)

    async def beat() -> None:
        if not at_once:
            await asyncio.sleep(pause_seconds)
        while True:
            told = details()
            activity.heartbeat(*told)
            if standby is not None:
                standby.note(told)
            await asyncio.sleep(pause_seconds)

    task = asyncio.create_task(beat())
    if standby is not None:
        _standbys.add(standby)
    try:
        yield
    finally:
        if standby is not None:
            _standbys.discard(standby)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass(eq=False)
class _Standby:
    """What it takes to beat for an activity whose loop does not turn."""

    client: Client
    task_token: bytes
    pause_seconds: float
    beaten_at: float = field(default_factory=time.monotonic)
    told: Sequence[object] = ()

    @classmethod
    def of_this_activity(cls, pause_seconds: float) -> _Standby | None:
        """None where there is no engine to tell: in tests of a step alone."""
        try:
            return cls(activity.client(), activity.info().task_token, pause_seconds)
        except RuntimeError:
            return None

    @property
    def is_late(self) -> bool:
        """Whether a beat should have come by now."""
        return time.monotonic() - self.beaten_at > self.pause_seconds + LATE_SECONDS

    def note(self, told: Sequence[object]) -> None:
        """Take down that the loop has beaten."""
        self.beaten_at, self.told = time.monotonic(), told

    async def beat(self) -> None:
        """Beat once. That the work was cancelled meanwhile, the loop learns by itself when it turns again."""
        self.beaten_at = time.monotonic()
        with suppress(Exception):
            await self.client.get_async_activity_handle(task_token=self.task_token).heartbeat(*self.told)


class _Standbys:
    """All activities of this process that beat, and the thread that looks after them."""

    def __init__(self) -> None:
        self._all: set[_Standby] = set()
        self._lock = threading.Lock()
        self._is_watched = False

    def add(self, standby: _Standby) -> None:
        """Look after an activity."""
        with self._lock:
            self._all.add(standby)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="heartbeats", daemon=True).start()

    def discard(self, standby: _Standby) -> None:
        """The activity has ended."""
        with self._lock:
            self._all.discard(standby)

    def _watch(self) -> None:
        asyncio.run(self._look())

    async def _look(self) -> None:
        needed_at = time.monotonic()
        while True:
            await asyncio.sleep(PAUSE_SECONDS / 2)
            with self._lock:
                if self._all:
                    needed_at = time.monotonic()
                elif time.monotonic() - needed_at > IDLE_SECONDS:
                    self._is_watched = False
                    return
                late = [standby for standby in self._all if standby.is_late]
            for standby in late:
                await standby.beat()


_standbys = _Standbys()
