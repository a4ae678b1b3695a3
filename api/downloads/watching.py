"""Watching: one poller for each watched download of this process, whoever and how many watch; ends come by LISTEN."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from enum import StrEnum

from aiohttp import web
from sqlmodel import col, func, or_, select

from activities.downloads.catalogue import CHANNEL
from api.downloads.answers import DownloadAnswer
from api.downloads.board import BOARD, LOOK_SECONDS, Board, Key
from domain.downloads.status import State
from domain.faults import Missing
from infra import log
from infra.database import LISTENING, Database
from infra.services import Services
from infra.tables.downloads import Download

FOLLOWED_MAX = 50
"""So many running downloads of a project are looked at for its watchers; of the others they hear the ends."""

BACKLOG_MAX = 1_000
"""A watcher that has so many downloads to catch up with is dropped."""

_UNHEARD = timedelta(minutes=1)

_log = log.get(__name__)


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


class Watches:
    """All that is watched in this process."""

    def __init__(self, board: Board, database: Database) -> None:
        self._board = board
        self._database = database
        self._watches: dict[Key, _Watch] = {}
        self._projects: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None

    async def start(self, _app: web.Application) -> None:
        """Begin to listen."""
        self._listening = asyncio.create_task(self._listen())

    async def stop(self, _app: web.Application) -> None:
        """End every stream, so that the server need not wait for its watchers."""
        everybody = [*self._projects.values(), *(watch.watchers for watch in self._watches.values())]
        for watcher in {watcher for watchers in everybody for watcher in watchers}:
            watcher.end(Ending.STOPPING)
        tasks = [watch.task for watch in self._watches.values()]
        self._watches.clear()
        if self._listening is not None:
            tasks.append(self._listening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def of_download(self, project_id: str, task_id: str) -> AsyncIterator[Subscription]:
        """Watch one download from where it stands now to its end.

        Raises:
            Missing: The project has no such download.
        """
        first = await self._board.read(project_id, task_id)
        watcher = Subscription()
        if first.state.final:
            watcher.tell(first)
            watcher.end(Ending.FINISHED)
            yield watcher
            return
        watch = self._watch(project_id, task_id)
        watch.add(watcher, first)
        try:
            yield watcher
        finally:
            watch.watchers.discard(watcher)
            self._drop_unwatched([watch])

    @asynccontextmanager
    async def of_project(self, project_id: str) -> AsyncIterator[Subscription]:
        """Watch all downloads of a project: those that run now, and those to come."""
        watcher = Subscription()
        self._projects[project_id].add(watcher)
        try:
            await self._follow(project_id)
            for watch in self._of(project_id):
                if watch.last is not None:
                    watcher.tell(watch.last)
            yield watcher
        finally:
            self._projects[project_id].discard(watcher)
            if not self._projects[project_id]:
                del self._projects[project_id]
            self._drop_unwatched(self._of(project_id))

    def _watch(self, project_id: str, task_id: str) -> _Watch:
        key = (project_id, task_id)
        if key not in self._watches or self._watches[key].task.done():
            watch = self._watches[key] = _Watch(self._board, key, self._projects)
            watch.task.add_done_callback(lambda _: self._forget(watch))
        return self._watches[key]

    def _of(self, project_id: str) -> list[_Watch]:
        return [watch for key, watch in self._watches.items() if key[0] == project_id]

    def _drop_unwatched(self, watches: Iterable[_Watch]) -> None:
        for watch in watches:
            if not watch.is_wanted:
                watch.task.cancel()
                self._forget(watch)

    def _forget(self, watch: _Watch) -> None:
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]

    async def _listen(self) -> None:
        async for payload in self._database.listen(CHANNEL):
            if payload == LISTENING:
                await self._catch_up()
                continue
            told = json.loads(payload)
            key = (told["project_id"], told["task_id"])
            if key in self._watches:
                self._watches[key].stir()
            elif key[0] in self._projects and (State(told["state"]).final or len(self._of(key[0])) < FOLLOWED_MAX):
                self._watch(*key)

    async def _catch_up(self) -> None:
        """Look at everything that may have changed while nothing could be heard."""
        for watch in self._watches.values():
            watch.stir()
        for project_id in list(self._projects):
            try:
                await self._follow(project_id)
            except Exception as error:  # noqa: BLE001 (whatever it is, the next notification must be heard)
                _log.warning("project_not_followed", project_id=project_id, error=repr(error))

    async def _follow(self, project_id: str) -> None:
        """Watch what runs in a project, and what ended in a moment that nobody may have heard."""
        running = col(Download.state).in_([State.PENDING, State.RUNNING])
        just_ended = col(Download.finished_at) > func.now() - _UNHEARD
        query = select(Download.task_id).where(Download.project_id == project_id, or_(running, just_ended))
        query = query.order_by(col(Download.created_at).desc()).limit(FOLLOWED_MAX)
        async with self._database.session() as session:
            found = (await session.exec(query)).all()
        for task_id in found:
            self._watch(project_id, task_id)


class _Watch:
    """The poller of one download: it tells every watcher when something changed, until the download is over."""

    def __init__(self, board: Board, key: Key, projects: defaultdict[str, set[Subscription]]) -> None:
        self.key = key
        self.watchers: set[Subscription] = set()
        self.last: DownloadAnswer | None = None
        self._board = board
        self._projects = projects
        self._stirred = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    @property
    def is_wanted(self) -> bool:
        """Whether anybody watches."""
        return bool(self.watchers) or self.key[0] in self._projects

    def add(self, watcher: Subscription, first: DownloadAnswer) -> None:
        """One more watcher; it begins with what the others know, where they know more."""
        self.watchers.add(watcher)
        watcher.tell(self.last or first)

    def stir(self) -> None:
        """Look into the catalogue: the download began or ended."""
        self._stirred.set()

    async def _run(self) -> None:
        while True:
            try:
                self._tell(await self._look())
                if self.last and self.last.state.final:
                    break
            except Missing:
                break
            except Exception as error:  # noqa: BLE001 (an outage ends no watch: the next look may succeed)
                _log.warning("watch_interrupted", task_id=self.key[1], error=repr(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._stirred.wait()
        for watcher in self.watchers:
            watcher.end(Ending.FINISHED)

    async def _look(self) -> DownloadAnswer:
        if self.last is None or self._stirred.is_set():
            self._stirred.clear()
            return await self._board.read(*self.key)
        return await self._board.progress(self.key[0], self.last)

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


WATCHES = web.AppKey("downloads_watches", Watches)


def attach(app: web.Application, services: Services) -> None:
    """Hang the board and the watches on the application; they live while it serves."""
    board = app[BOARD] = Board(services)
    watches = app[WATCHES] = Watches(board, services.database)
    app.on_startup.append(watches.start)
    app.on_shutdown.append(watches.stop)
