"""Kills that count: each one hit work under way, and what became of it is kept and printed at the end of the run."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import psutil
import pytest

from tests.support.waiting import eventually

PROPERTY = "kills"
"""The name under which the last report of a test carries its record."""
TRIES_MAX = 8
"""Kills that find nothing under way before a test gives up: its work is then too short to be hit."""

Check = Callable[[], bool | Awaitable[bool]]


class Killable(Protocol):
    """What can be killed and comes back by itself."""

    def kill(self, name: str, /) -> None: ...

    async def ready(self, name: str, /) -> None: ...

    @property
    def pids(self) -> dict[str, int]: ...


@dataclass
class KillRecord:
    """What one test did and found."""

    test: str
    kills: int = 0
    stops: int = 0
    """Processes that were asked to stop, by SIGTERM."""
    hangs: int = 0
    """Processes that were paused for a while by SIGSTOP."""
    wasted: int = 0
    """Kills, stops and hangs that found nothing under way; they were made again."""
    lost: int | None = None
    """Accepted work that was never done; None where the test ended before it could count."""
    doubled: int | None = None
    """Work that was done twice."""
    recovery_seconds: float = 0.0
    """The longest time from a kill until what was killed served again."""

    @property
    def problem(self) -> str:
        """What a test that ended well has left out; nothing if it is complete."""
        if self.kills + self.stops + self.hangs == 0:
            return "The test has a killer, and nothing was hit by a kill, stop or hang: see try_kill."
        if self.lost is None or self.doubled is None:
            return "The test did not count what was lost and doubled: call killer.close before it asserts on both."
        return ""


RECORD = pytest.StashKey[KillRecord]()
"""Where a test keeps its record."""


class Killer:
    """Kill parts in the middle of work, and keep count.

    Args:
        record: Is kept up to date.
        target: Holds the parts.
    """

    def __init__(self, record: KillRecord, target: Killable) -> None:
        self.record = record
        self.made: list[tuple[float, str]] = []
        """When which part was killed, in seconds since 1970."""
        self._target = target

    async def kill(self, *names: str, under_way: Check) -> None:
        """Kill these parts while work is under way, and return when they serve again; see `try_kill`."""
        for _ in range(TRIES_MAX):
            if await self.try_kill(*names, under_way=under_way):
                return
        raise AssertionError(f"{TRIES_MAX} kills of {', '.join(names)} found nothing under way")

    async def kill_each(self, names: Sequence[str], *, every_seconds: float, under_way: Check) -> None:
        """Kill a part every few seconds, and the next only when the last one serves again."""
        for name in names:
            await asyncio.sleep(every_seconds)
            await self.kill(name, under_way=under_way)

    async def try_kill(self, *names: str, under_way: Check, begun: Check | None = None) -> bool:
        """Wait for work, kill these parts, and wait until they serve again; say whether that counts.

        It counts only if the work was still under way after the kill: else it hit nothing. A test whose work is over
        by then begins it anew and tries again.

        Args:
            under_way: Whether something is being done that the kill can hit.
            begun: Whether it is time to kill; by default as soon as something is under way. It must stay true once it
                was, as work may be over before it is looked at.
        """
        return await self._try("kills", self._kill, names, begun or under_way, under_way)

    async def try_stop(self, *names: str, under_way: Check, begun: Check | None = None) -> bool:
        """Ask processes to stop by SIGTERM, and wait until others serve in their place: as `try_kill` in all else."""
        return await self._try("stops", self._terminate, names, begun or under_way, under_way)

    @asynccontextmanager
    async def hang(self, name: str, *, under_way: Check) -> AsyncIterator[bool]:
        """Pause a process by SIGSTOP as long as the block lasts; yield whether it held work under way."""
        pid = self._target.pids[name]
        os.kill(pid, signal.SIGSTOP)
        self.made.append((time.time(), name))
        try:
            # A process that does not run just now takes the signal up when it is its turn.
            await eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
            hit = await _holds(under_way)
            self.record.hangs += hit
            self.record.wasted += not hit
            yield hit
        finally:
            os.kill(pid, signal.SIGCONT)

    def close(self, *, lost: int, doubled: int) -> None:
        """Keep what came of the work: a test calls this once, just before it asserts on both."""
        self.record.lost, self.record.doubled = lost, doubled

    async def _try(
        self, kind: str, end: Callable[[str], None], names: Sequence[str], begun: Check, under_way: Check
    ) -> bool:
        await eventually(lambda: _holds(begun))
        before, began = self._target.pids, time.monotonic()
        for name in names:
            end(name)
            self.made.append((time.time(), name))
        # A check that asks the parts themselves is answered only when they are back.
        hit = await _holds(under_way)
        for name in names:
            if kind == "stops":
                await self._until_gone(name, before[name])
            await self._target.ready(name)
            assert self._target.pids[name] != before.get(name), f"{name} goes on as if nothing had been done to it"
        if hit:
            setattr(self.record, kind, getattr(self.record, kind) + len(names))
            seconds = round(time.monotonic() - began, 2)
            self.record.recovery_seconds = max(self.record.recovery_seconds, seconds)
        else:
            self.record.wasted += len(names)
        return hit

    async def _until_gone(self, name: str, pid: int) -> None:
        """Wait until a process that was asked to stop has: it serves until then."""
        await eventually(lambda: self._target.pids.get(name, pid) != pid)

    def _kill(self, name: str) -> None:
        self._target.kill(name)

    def _terminate(self, name: str) -> None:
        os.kill(self._target.pids[name], signal.SIGTERM)


async def _holds(check: Check) -> bool:
    answer = check()
    return bool(await answer if inspect.isawaitable(answer) else answer)


def summarize(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up the records of a run, for the file that is kept and the lines that are printed."""
    tests = sorted((KillRecord(**each) for each in records), key=lambda record: record.test)
    return {
        **{kind: sum(getattr(record, kind) for record in tests) for kind in ("kills", "stops", "hangs")},
        "wasted": sum(record.wasted for record in tests),
        "lost": sum(record.lost or 0 for record in tests),
        "doubled": sum(record.doubled or 0 for record in tests),
        "not_counted": [record.test for record in tests if record.lost is None or record.doubled is None],
        "recovery_seconds_max": round(max((record.recovery_seconds for record in tests), default=0.0), 2),
        "tests": [asdict(record) for record in tests],
    }
