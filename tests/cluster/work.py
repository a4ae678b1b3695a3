"""The pieces of work of a load, and what every load does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.cluster.record import Verdict

PAUSE_SECONDS = 0.5
PATIENCE_SECONDS = 240.0

Json = dict[str, Any]


@dataclass
class Work:
    """The pieces of work of one system: those under way, and when the others began and ended."""

    open: dict[str, float] = field(default_factory=dict)
    ended: list[tuple[float, float]] = field(default_factory=list)

    def begin(self, name: str) -> None:
        """Note that a piece of work is asked for."""
        self.open[name] = time.monotonic()

    def end(self, name: str) -> None:
        """Note that it is done."""
        if (began := self.open.pop(name, None)) is not None:
            self.ended.append((began, time.monotonic()))

    def find_first_end(self, since: float) -> float | None:
        """Return when the first piece of work ended that began after a moment."""
        return min((ended for began, ended in self.ended if began >= since), default=None)


class Load(Protocol):
    """The load of one system."""

    name: str
    work: Work

    async def run(self, over: asyncio.Event) -> None:
        """Ask for work until it is over, and wait until all of it is done."""

    async def check(self) -> Verdict:
        """Compare what came of it with what must be."""


async def ask_until_answered(ask: Callable[[], Awaitable[Json | None]]) -> Json:
    """Ask until there is something to return."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if answer := await ask():
                return answer
            await asyncio.sleep(PAUSE_SECONDS)
