"""A subscription: what one watcher has not been told yet, kept small however slow the watcher is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum

from api.downloads.answers import DownloadAnswer

BACKLOG_MAX = 1_000
"""A watcher that has so many downloads to catch up with is dropped."""


class Ending(StrEnum):
    """Why a watcher hears no more."""

    FINISHED = "the download is over"
    STOPPING = "this server stops; connect again"
    TOO_SLOW = "too slow to keep up; connect again"
    LEFT = "the watcher left"
    KEY_REVOKED = "the key was revoked"


class Subscription:
    """What one watcher has not been told yet: of each download the newest word alone, so that it stays small."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._unheard: dict[str, DownloadAnswer] = {}
        self._stirred = asyncio.Event()

    def tell(self, answer: DownloadAnswer) -> None:
        """Leave news for the watcher."""
        if self.ending is not None:
            return
        self._unheard[answer.task_id] = answer
        self._stirred.set()
        if len(self._unheard) > BACKLOG_MAX:
            self._unheard.clear()
            self.end(Ending.TOO_SLOW)

    def end(self, ending: Ending) -> None:
        """No more news; what was left is still heard."""
        self.ending = self.ending or ending
        self._stirred.set()

    async def news(self, patience_seconds: float | None = None) -> list[DownloadAnswer] | None:
        """What is new; an empty list when nothing was for so long, None when there will be nothing more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await self._stirred.wait()
        self._stirred.clear()
        found = list(self._unheard.values())
        self._unheard.clear()
        if self.ending is not None:
            self._stirred.set()
            return found or None
        return found
