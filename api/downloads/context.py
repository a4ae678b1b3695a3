"""The routes of downloads, and the state of this process that their handlers share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web
from pydantic import Field

from api.downloads import watching
from api.downloads.responses import STATUS_READER, DownloadStatusReader
from api.downloads.watching import WATCH_REGISTRY, DownloadWatchRegistry
from api.http.models import Request
from api.http.routes import Call, Routes
from domain.faults import QuotaExhausted
from domain.quotas import PREVIEWS_OF_PROJECT_QUOTA, PREVIEWS_QUOTA
from services.services import Services

PREVIEWS_WAITING_MAX = 20
PREVIEWS_PER_PROJECT_MAX = 3
RETRY_SECONDS = 1
PREVIEWS_BUSY = "previews_busy"

Result = TypeVar("Result")


class DownloadPath(Request):
    """The id of a download in the path of a request."""

    task_id: str = Field(pattern=r"^dl_[0-9a-z]{24}$")


class PreviewQueue:
    """Draws previews, one at a time for the whole process, with a short queue."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "preview")
        self._taken: Counter[str] = Counter()

    async def draw_when_turn_comes_or_raise_if_full(self, project_id: str, work: Callable[[], Result]) -> Result:
        """Run the work of a project when it is its turn; a cancelled caller leaves the queue.

        Raises:
            QuotaExhausted: Too many are waiting.
        """
        if self._taken[project_id] >= PREVIEWS_PER_PROJECT_MAX:
            raise _build_busy_fault(
                f"This project has {PREVIEWS_PER_PROJECT_MAX} previews in the queue here, as many as it may.",
                PREVIEWS_OF_PROJECT_QUOTA,
            )
        if self._taken.total() > PREVIEWS_WAITING_MAX:
            raise _build_busy_fault(f"{PREVIEWS_WAITING_MAX} previews are waiting to be drawn here, as many as may.")
        self._taken[project_id] += 1
        loop = asyncio.get_running_loop()
        drawn = self._thread.submit(work)
        drawn.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release_place, project_id))
        return await asyncio.wrap_future(drawn)

    async def close(self, _app: web.Application) -> None:
        """Cancel what is waiting, and stop the thread."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _release_place(self, project_id: str) -> None:
        self._taken[project_id] -= 1
        self._taken += Counter()  # removes projects whose count is zero


def _build_busy_fault(sentence: str, quota: str = PREVIEWS_QUOTA) -> QuotaExhausted:
    return QuotaExhausted(
        PREVIEWS_BUSY, sentence, "Ask again in a moment.", violated=[quota], retry_after_seconds=RETRY_SECONDS
    )


PREVIEW_QUEUE = web.AppKey("downloads_preview_queue", PreviewQueue)


def _attach_watching_and_previews(app: web.Application, services: Services) -> None:
    """Add to the application what watches downloads and what draws previews."""
    watching.add_status_reader_and_watch_registry(app, services)
    queue = app[PREVIEW_QUEUE] = PreviewQueue()
    app.on_cleanup.append(queue.close)


routes = Routes("downloads", "A paged source becomes a file.", attach=_attach_watching_and_previews)


def get_status_reader(call: Call) -> DownloadStatusReader:
    """Return what reads the states of downloads in this process."""
    return call.request.app[STATUS_READER]


def get_watch_registry(call: Call) -> DownloadWatchRegistry:
    """Return what watches downloads in this process."""
    return call.request.app[WATCH_REGISTRY]


def get_preview_queue(call: Call) -> PreviewQueue:
    """Return the queue of previews of this process."""
    return call.request.app[PREVIEW_QUEUE]
