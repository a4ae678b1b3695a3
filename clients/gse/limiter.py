"""How many calls go to GSE: so many at a time, and so many a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallLimiter:
    """Let calls through in the order in which they come.

    Args:
        concurrency: Calls at a time.
        calls_per_second: Evenly spread; 0 for no limit.
    """

    def __init__(self, concurrency: int, calls_per_second: float) -> None:
        self._places = asyncio.Semaphore(concurrency)
        self._pause_seconds = 1 / calls_per_second if calls_per_second else 0.0
        self._next_at = 0.0

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Wait for a place, and for the next moment; hold the place while the body runs."""
        async with self._places:
            now = asyncio.get_running_loop().time()
            begins_at = max(self._next_at, now)
            self._next_at = begins_at + self._pause_seconds
            if begins_at > now:
                await asyncio.sleep(begins_at - now)
            yield
