"""A read that everybody shares who asks within a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

FRESH_SECONDS: Final = 2.0
REST_FACTOR: Final = 20
"""A read that took long is kept for this many times as long, so that reading takes a twentieth of the time at most."""

Result = TypeVar("Result")


class CachedRead(Generic[Result]):
    """Read at most once in `seconds`; whoever asks during a read waits for its result."""

    def __init__(self, read: Callable[[], Awaitable[Result]], seconds: float = FRESH_SECONDS) -> None:
        self._read = read
        self._seconds = seconds
        self._good_until = 0.0
        self._reading: asyncio.Task[Result] | None = None

    async def get(self) -> Result:
        """The last result while it is fresh, otherwise a new one; a read that failed fails for all who wait for it."""
        if self._reading is None or (self._reading.done() and time.monotonic() >= self._good_until):
            self._reading = asyncio.create_task(self._renew())
        return await asyncio.shield(self._reading)

    async def _renew(self) -> Result:
        begun = time.monotonic()
        try:
            return await self._read()
        finally:
            now = time.monotonic()
            self._good_until = max(begun + self._seconds, now + REST_FACTOR * (now - begun))
