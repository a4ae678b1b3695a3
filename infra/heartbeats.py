"""Heartbeats: a running activity says every second that it lives, so that the engine soon notices when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from temporalio import activity

PAUSE_SECONDS = 1.0


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

    async def beat() -> None:
        if not at_once:
            await asyncio.sleep(pause_seconds)
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
