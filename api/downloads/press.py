"""The press: where this process draws books for callers who wait, one at a time, so that no number of them stops it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web

from domain.faults import Exhausted

WAITING_MAX = 20
OF_A_PROJECT_MAX = 3
RETRY_SECONDS = 1
BUSY = "previews_busy"

Result = TypeVar("Result")


class Press:
    """One thread, and a short queue before it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "preview")
        self._taken: Counter[str] = Counter()

    async def run(self, project_id: str, work: Callable[[], Result]) -> Result:
        """Do a project's work when it is its turn. Who goes away while waiting leaves the queue.

        Raises:
            Exhausted: Too many are waiting.
        """
        if self._taken[project_id] >= OF_A_PROJECT_MAX:
            raise _busy(
                f"This project has {OF_A_PROJECT_MAX} previews in the queue here, as many as it may.", "project-"
            )
        if self._taken.total() > WAITING_MAX:
            raise _busy(f"{WAITING_MAX} previews are waiting to be drawn here, as many as may.")
        self._taken[project_id] += 1
        loop = asyncio.get_running_loop()
        drawn = self._thread.submit(work)
        drawn.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave, project_id))
        return await asyncio.wrap_future(drawn)

    async def close(self, _app: web.Application) -> None:
        """Draw nothing more."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _leave(self, project_id: str) -> None:
        self._taken[project_id] -= 1
        self._taken += Counter()  # forgets projects without any


def _busy(sentence: str, whose: str = "") -> Exhausted:
    violated = [f"{whose}previews"]
    return Exhausted(BUSY, sentence, "Ask again in a moment.", violated=violated, retry_after_seconds=RETRY_SECONDS)


PRESS = web.AppKey("downloads_press", Press)


def attach(app: web.Application) -> None:
    """Hang the press on the application."""
    press = app[PRESS] = Press()
    app.on_cleanup.append(press.close)
