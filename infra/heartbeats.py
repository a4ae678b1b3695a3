"""Heartbeats: a running activity says every second that it lives, so that the engine soon notices when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from temporalio import activity

PAUSE_SECONDS = 1.0


@asynccontextmanager
async def beating(
    details: Callable[[], Sequence[object]] = tuple, *, pause_seconds: float = PAUSE_SECONDS
) -> AsyncIterator[None]:
    """Beat while the body runs.

    Args:
        details: How far it is, asked at each beat.
        pause_seconds: Between two beats; several must fit the heartbeat's time-out.
    """

    async def beat() -> None:
        while True:
            activity.heartbeat(*details())
            await asyncio.sleep(pause_seconds)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
