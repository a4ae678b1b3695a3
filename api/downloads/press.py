"""The press: where this process draws books for callers who wait, one at a time, so that no number of them stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web

from domain.faults import Exhausted

WAITING_MAX = 20
RETRY_SECONDS = 1
BUSY = "previews_busy"

Result = TypeVar("Result")


class Press:
    """One thread, and a short queue before it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "preview")
        self._taken = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        """Do the work when it is its turn. Who goes away while waiting leaves the queue.

        Raises:
            Exhausted: Too many are waiting.
        """
        if self._taken > WAITING_MAX:
            raise Exhausted(
                BUSY,
                f"{WAITING_MAX} previews are waiting to be drawn here, as many as may.",
                "Ask again in a moment.",
                violated=["previews"],
                retry_after_seconds=RETRY_SECONDS,
            )
        self._taken += 1
        loop = asyncio.get_running_loop()
        drawn = self._thread.submit(work)
        drawn.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        return await asyncio.wrap_future(drawn)

    async def close(self, _app: web.Application) -> None:
        """Draw nothing more."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _leave(self) -> None:
        self._taken -= 1


PRESS = web.AppKey("downloads_press", Press)


def attach(app: web.Application) -> None:
    """Hang the press on the application."""
    press = app[PRESS] = Press()
    app.on_cleanup.append(press.close)
