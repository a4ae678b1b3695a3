"""Watching: one poller for each watched download of this process, whoever and how many watch; ends come by LISTEN."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from aiohttp import web

from api.downloads.board import BOARD, Board, Key
from api.downloads.poller import Poller
from api.downloads.subscription import Ending, Subscription
from domain.downloads.models import State
from domain.faults import Exhausted
from infra import log, metrics
from infra.database import LISTENING, Database
from services.services import Services
from stores.downloads import searching
from stores.downloads.catalogue import CHANNEL

FOLLOWED_MAX = 50
"""So many running downloads of a project are looked at for its watchers; of the others they hear the ends."""

TOO_MANY_STREAMS = "too_many_streams"
STREAM_RETRY_SECONDS = 5

_UNHEARD = timedelta(minutes=1)

_log = log.get(__name__)


class Watches:
    """All that is watched in this process."""

    def __init__(self, board: Board, database: Database, streams_per_project: int) -> None:
        self._board = board
        self._database = database
        self._streams_per_project = streams_per_project
        self._streams: Counter[str] = Counter()
        self._pollers: dict[Key, Poller] = {}
        self._projects: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self, _app: web.Application) -> None:
        """Begin to listen."""
        self._listening = asyncio.create_task(self._listen())

    async def stop(self, _app: web.Application) -> None:
        """End every stream, so that the server need not wait for its watchers."""
        self._is_stopping = True
        everybody = [*self._projects.values(), *(poller.watchers for poller in self._pollers.values())]
        for watcher in {watcher for watchers in everybody for watcher in watchers}:
            watcher.end(Ending.STOPPING)
        tasks = [poller.task for poller in self._pollers.values()]
        self._pollers.clear()
        if self._listening is not None:
            tasks.append(self._listening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def stream(self, project_id: str) -> Iterator[None]:
        """Count one more open stream of a project.

        Raises:
            Exhausted: It has as many as it may.
        """
        if self._streams[project_id] >= self._streams_per_project:
            raise Exhausted(
                TOO_MANY_STREAMS,
                f"This project holds {self._streams_per_project} streams open here, as many as it may.",
                "Close one; GET /v1/downloads/ws tells of all downloads over a single one.",
                violated=["project-streams"],
                retry_after_seconds=STREAM_RETRY_SECONDS,
            )
        self._streams[project_id] += 1
        try:
            yield
        finally:
            self._streams[project_id] -= 1
            self._streams += Counter()  # forgets projects without any

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
        poller = self._poller(project_id, task_id)
        poller.add(watcher, first)
        self._end_if_stopping(watcher)
        try:
            with metrics.WATCHERS.track_inprogress():
                yield watcher
        finally:
            poller.watchers.discard(watcher)
            self._drop_unwatched([poller])

    @asynccontextmanager
    async def of_project(self, project_id: str) -> AsyncIterator[Subscription]:
        """Watch all downloads of a project: those that run now, and those to come."""
        watcher = Subscription()
        self._projects[project_id].add(watcher)
        try:
            await self._follow(project_id)
            for poller in self._of(project_id):
                if poller.last is not None:
                    watcher.tell(poller.last)
            self._end_if_stopping(watcher)
            with metrics.WATCHERS.track_inprogress():
                yield watcher
        finally:
            self._projects[project_id].discard(watcher)
            if not self._projects[project_id]:
                del self._projects[project_id]
            self._drop_unwatched(self._of(project_id))

    def _end_if_stopping(self, watcher: Subscription) -> None:
        if self._is_stopping:
            watcher.end(Ending.STOPPING)

    def _poller(self, project_id: str, task_id: str) -> Poller:
        key = (project_id, task_id)
        if key not in self._pollers or self._pollers[key].task.done():
            poller = self._pollers[key] = Poller(self._board, key, self._projects)
            poller.task.add_done_callback(lambda _: self._forget(poller))
        return self._pollers[key]

    def _of(self, project_id: str) -> list[Poller]:
        return [poller for key, poller in self._pollers.items() if key[0] == project_id]

    def _drop_unwatched(self, pollers: Iterable[Poller]) -> None:
        for poller in pollers:
            if not poller.is_wanted:
                poller.task.cancel()
                self._forget(poller)

    def _forget(self, poller: Poller) -> None:
        if self._pollers.get(poller.key) is poller:
            del self._pollers[poller.key]

    async def _listen(self) -> None:
        async for payload in self._database.listen(CHANNEL):
            if payload == LISTENING:
                await self._catch_up()
                continue
            try:
                self._hear(json.loads(payload))
            except (ValueError, LookupError) as error:
                # Another version may tell what we do not know yet.
                _log.warning("notification_unreadable", error=repr(error))

    def _hear(self, told: dict[str, str]) -> None:
        """A download began or ended."""
        key = (told["project_id"], told["task_id"])
        poller = self._pollers.get(key)
        if poller is not None and not poller.task.done():
            poller.stir()
        elif key[0] in self._projects and (State(told["state"]).final or len(self._of(key[0])) < FOLLOWED_MAX):
            self._poller(*key)

    async def _catch_up(self) -> None:
        """Look at everything that may have changed while nothing could be heard."""
        for poller in self._pollers.values():
            poller.stir()
        for project_id in list(self._projects):
            try:
                await self._follow(project_id)
            except Exception as error:  # noqa: BLE001 (whatever it is, the next notification must be heard)
                _log.warning("project_not_followed", project_id=project_id, error=repr(error))

    async def _follow(self, project_id: str) -> None:
        """Watch what runs in a project, and what ended in a moment that nobody may have heard."""
        found = await searching.list_unfinished(self._database, project_id, ended_within=_UNHEARD, limit=FOLLOWED_MAX)
        for task_id in found:
            self._poller(project_id, task_id)


WATCHES = web.AppKey("downloads_watches", Watches)


def attach(app: web.Application, services: Services) -> None:
    """Hang the board and the watches on the application; they live while it serves."""
    board = app[BOARD] = Board(services)
    watches = app[WATCHES] = Watches(board, services.database, services.settings.api.streams_per_project)
    app.on_startup.append(watches.start)
    app.on_shutdown.append(watches.stop)
