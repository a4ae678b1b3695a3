"""The poller: looks at one watched download for all its watchers, until it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from api.downloads.answers import DownloadAnswer
from api.downloads.board import LOOK_SECONDS, Board, Key
from api.downloads.subscription import Ending, Subscription
from domain.faults import Missing
from infra import log

_log = log.get(__name__)


class Poller:
    """Tells every watcher when something changed.

    Args:
        board: Where it looks.
        key: Project and download.
        projects: Who watches whole projects; they are told, too.
    """

    def __init__(self, board: Board, key: Key, projects: Mapping[str, set[Subscription]]) -> None:
        self.key = key
        self.watchers: set[Subscription] = set()
        self.last: DownloadAnswer | None = None
        self._board = board
        self._projects = projects
        self._stirred = asyncio.Event()
        # What happened before anybody heard of it is in the catalogue already.
        self._stirred.set()
        self.task = asyncio.create_task(self._run())

    @property
    def is_wanted(self) -> bool:
        """Whether anybody watches."""
        return bool(self.watchers) or self.key[0] in self._projects

    def add(self, watcher: Subscription, first: DownloadAnswer) -> None:
        """One more watcher; it begins with what the others know, if there are others."""
        self.watchers.add(watcher)
        self.last = self.last or first
        watcher.tell(self.last)

    def stir(self) -> None:
        """Look into the catalogue: the download began or ended."""
        self._stirred.set()

    async def _run(self) -> None:
        while self.last is None or not self.last.state.final:
            try:
                self._tell(await self._look())
            except Missing:
                break
            except Exception as error:  # noqa: BLE001 (an outage ends no watch: the next look may succeed)
                _log.warning("look_failed", task_id=self.key[1], error=repr(error))
            await self._rest()
        for watcher in self.watchers:
            watcher.end(Ending.FINISHED)

    async def _look(self) -> DownloadAnswer:
        if self.last is None or self._stirred.is_set():
            self._stirred.clear()
            return await self._board.read(*self.key)
        return await self._board.progress(self.key[0], self.last)

    async def _rest(self) -> None:
        if self.last is not None and self.last.state.final:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._stirred.wait()

    def _tell(self, answer: DownloadAnswer) -> None:
        """Rows never go backwards while it runs: what is fetched once more, because it was not secured, is not told."""
        if self.last is not None and not answer.state.final:
            answer = answer.model_copy(update={"rows": max(answer.rows, self.last.rows)})
        if self.last is not None and _lasting(answer) == _lasting(self.last):
            return
        self.last = answer
        for watcher in [*self.watchers, *self._projects.get(self.key[0], ())]:
            watcher.tell(answer)


def _lasting(answer: DownloadAnswer) -> DownloadAnswer:
    """The answer without what changes with every second."""
    return answer.model_copy(update={"rows_per_second": None})
