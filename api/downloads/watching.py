"""Watching: one poller for each watched download of this process, whoever and how many watch; ends come by LISTEN."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from enum import StrEnum

from aiohttp import web

from api.downloads.responses import DownloadResponse
from api.downloads.status import STATUS_CACHE_SECONDS, STATUS_READER, DownloadKey, StatusReader
from domain.downloads.models import DownloadState
from domain.faults import Exhausted, Missing
from infra import log, metrics
from infra.database import LISTENING, Database
from services.services import Services
from stores.downloads import catalogue
from stores.downloads.catalogue import CHANNEL

POLLED_PER_PROJECT_MAX = 50
"""So many running downloads of a project are looked at for its watchers; of the others they hear the ends."""

TOO_MANY_STREAMS = "too_many_streams"
STREAM_RETRY_SECONDS = 5

_RECENTLY_ENDED = timedelta(minutes=1)

_log = log.get(__name__)
BACKLOG_MAX = 1_000
"""A watcher that has so many downloads to catch up with is dropped."""


class WatchRegistry:
    """All that is watched in this process."""

    def __init__(self, status_reader: StatusReader, database: Database, streams_per_project: int) -> None:
        self._status_reader = status_reader
        self._database = database
        self._streams_per_project = streams_per_project
        self._streams: Counter[str] = Counter()
        self._pollers: dict[DownloadKey, DownloadPoller] = {}
        self._projects: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self, _app: web.Application) -> None:
        """Begin to listen."""
        self._listening = asyncio.create_task(self._listen())

    async def stop(self, _app: web.Application) -> None:
        """End every stream, so that the server need not wait for its watchers."""
        self._is_stopping = True
        everybody = [*self._projects.values(), *(poller.subscriptions for poller in self._pollers.values())]
        for subscription in {subscription for subscriptions in everybody for subscription in subscriptions}:
            subscription.end(SubscriptionEnd.STOPPING)
        tasks = [poller.task for poller in self._pollers.values()]
        self._pollers.clear()
        if self._listening is not None:
            tasks.append(self._listening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def count_stream(self, project_id: str) -> Iterator[None]:
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
    async def watch_download(self, project_id: str, task_id: str) -> AsyncIterator[Subscription]:
        """Watch one download from where it stands now to its end.

        Raises:
            Missing: The project has no such download.
        """
        first = await self._status_reader.read(project_id, task_id)
        subscription = Subscription()
        if first.state.final:
            subscription.push(first)
            subscription.end(SubscriptionEnd.FINISHED)
            yield subscription
            return
        poller = self._get_poller(project_id, task_id)
        poller.add(subscription, first)
        self._end_if_stopping(subscription)
        try:
            with metrics.WATCHERS.track_inprogress():
                yield subscription
        finally:
            poller.subscriptions.discard(subscription)
            self._drop_unwatched([poller])

    @asynccontextmanager
    async def watch_project(self, project_id: str) -> AsyncIterator[Subscription]:
        """Watch all downloads of a project: those that run now, and those to come."""
        subscription = Subscription()
        self._projects[project_id].add(subscription)
        try:
            await self._poll_unfinished(project_id)
            for poller in self._pollers_of(project_id):
                if poller.last is not None:
                    subscription.push(poller.last)
            self._end_if_stopping(subscription)
            with metrics.WATCHERS.track_inprogress():
                yield subscription
        finally:
            self._projects[project_id].discard(subscription)
            if not self._projects[project_id]:
                del self._projects[project_id]
            self._drop_unwatched(self._pollers_of(project_id))

    def _end_if_stopping(self, subscription: Subscription) -> None:
        if self._is_stopping:
            subscription.end(SubscriptionEnd.STOPPING)

    def _get_poller(self, project_id: str, task_id: str) -> DownloadPoller:
        key = (project_id, task_id)
        if key not in self._pollers or self._pollers[key].task.done():
            poller = self._pollers[key] = DownloadPoller(self._status_reader, key, self._projects)
            poller.task.add_done_callback(lambda _: self._remove(poller))
        return self._pollers[key]

    def _pollers_of(self, project_id: str) -> list[DownloadPoller]:
        return [poller for key, poller in self._pollers.items() if key[0] == project_id]

    def _drop_unwatched(self, pollers: Iterable[DownloadPoller]) -> None:
        for poller in pollers:
            if not poller.is_wanted:
                poller.task.cancel()
                self._remove(poller)

    def _remove(self, poller: DownloadPoller) -> None:
        if self._pollers.get(poller.key) is poller:
            del self._pollers[poller.key]

    async def _listen(self) -> None:
        async for payload in self._database.listen(CHANNEL):
            if payload == LISTENING:
                await self._refresh_all()
                continue
            try:
                self._handle_notification(json.loads(payload))
            except (ValueError, LookupError) as error:
                # Another version may tell what we do not know yet.
                _log.warning("download_notification_unreadable", error=repr(error))

    def _handle_notification(self, notification: dict[str, str]) -> None:
        """A download began or ended."""
        key = (notification["project_id"], notification["task_id"])
        poller = self._pollers.get(key)
        if poller is not None and not poller.task.done():
            poller.refresh()
        elif key[0] in self._projects and (
            DownloadState(notification["state"]).final or len(self._pollers_of(key[0])) < POLLED_PER_PROJECT_MAX
        ):
            self._get_poller(*key)

    async def _refresh_all(self) -> None:
        """Look at everything that may have changed while nothing could be heard."""
        for poller in self._pollers.values():
            poller.refresh()
        for project_id in list(self._projects):
            try:
                await self._poll_unfinished(project_id)
            except Exception as error:  # noqa: BLE001 (whatever it is, the next notification must be heard)
                _log.warning("download_watch_refresh_failed", project_id=project_id, error=repr(error))

    async def _poll_unfinished(self, project_id: str) -> None:
        """Watch what runs in a project, and what ended in a moment that nobody may have heard."""
        found = await catalogue.list_unfinished(
            self._database, project_id, ended_within=_RECENTLY_ENDED, limit=POLLED_PER_PROJECT_MAX
        )
        for task_id in found:
            self._get_poller(project_id, task_id)


WATCH_REGISTRY = web.AppKey("downloads_watch_registry", WatchRegistry)


def attach_watching(app: web.Application, services: Services) -> None:
    """Hang the status_reader and the watches on the application; they live while it serves."""
    status_reader = app[STATUS_READER] = StatusReader(services)
    watches = app[WATCH_REGISTRY] = WatchRegistry(
        status_reader, services.database, services.settings.api.streams_per_project
    )
    app.on_startup.append(watches.start)
    app.on_shutdown.append(watches.stop)


class DownloadPoller:
    """Tells every watcher when something changed.

    Args:
        status_reader: Where it looks.
        key: Project and download.
        projects: Who watches whole projects; they are told, too.
    """

    def __init__(
        self, status_reader: StatusReader, key: DownloadKey, projects: Mapping[str, set[Subscription]]
    ) -> None:
        self.key = key
        self.subscriptions: set[Subscription] = set()
        self.last: DownloadResponse | None = None
        self._status_reader = status_reader
        self._projects = projects
        self._changed = asyncio.Event()
        # What happened before anybody heard of it is in the catalogue already.
        self._changed.set()
        self.task = asyncio.create_task(self._run())

    @property
    def is_wanted(self) -> bool:
        """Whether anybody watches."""
        return bool(self.subscriptions) or self.key[0] in self._projects

    def add(self, subscription: Subscription, first: DownloadResponse) -> None:
        """One more watcher; it begins with what the others know, if there are others."""
        self.subscriptions.add(subscription)
        self.last = self.last or first
        subscription.push(self.last)

    def refresh(self) -> None:
        """Look into the catalogue: the download began or ended."""
        self._changed.set()

    async def _run(self) -> None:
        while self.last is None or not self.last.state.final:
            try:
                self._publish(await self._read_status())
            except Missing:
                break
            except Exception as error:  # noqa: BLE001 (an outage ends no watch: the next look may succeed)
                _log.warning("download_status_read_failed", task_id=self.key[1], error=repr(error))
            await self._wait_for_change()
        for subscription in self.subscriptions:
            subscription.end(SubscriptionEnd.FINISHED)

    async def _read_status(self) -> DownloadResponse:
        if self.last is None or self._changed.is_set():
            self._changed.clear()
            return await self._status_reader.read(*self.key)
        return await self._status_reader.read_progress(self.key[0], self.last)

    async def _wait_for_change(self) -> None:
        if self.last is not None and self.last.state.final:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_CACHE_SECONDS):
                await self._changed.wait()

    def _publish(self, answer: DownloadResponse) -> None:
        """Rows never go backwards while it runs: what is fetched once more, because it was not secured, is not told."""
        if self.last is not None and not answer.state.final:
            answer = answer.model_copy(update={"rows": max(answer.rows, self.last.rows)})
        if self.last is not None and _without_speed(answer) == _without_speed(self.last):
            return
        self.last = answer
        for subscription in [*self.subscriptions, *self._projects.get(self.key[0], ())]:
            subscription.push(answer)


def _without_speed(answer: DownloadResponse) -> DownloadResponse:
    """The answer without what changes with every second."""
    return answer.model_copy(update={"rows_per_second": None})


class SubscriptionEnd(StrEnum):
    """Why a watcher hears no more."""

    FINISHED = "the download is over"
    STOPPING = "this server stops; connect again"
    TOO_SLOW = "too slow to keep up; connect again"
    LEFT = "the watcher left"
    KEY_REVOKED = "the key was revoked"


class Subscription:
    """What one watcher has not been told yet: of each download the newest word alone, so that it stays small."""

    def __init__(self) -> None:
        self.ending: SubscriptionEnd | None = None
        self._pending: dict[str, DownloadResponse] = {}
        self._changed = asyncio.Event()

    def push(self, answer: DownloadResponse) -> None:
        """Leave news for the watcher."""
        if self.ending is not None:
            return
        self._pending[answer.task_id] = answer
        self._changed.set()
        if len(self._pending) > BACKLOG_MAX:
            self._pending.clear()
            self.end(SubscriptionEnd.TOO_SLOW)

    def end(self, ending: SubscriptionEnd) -> None:
        """No more news; what was left is still heard."""
        self.ending = self.ending or ending
        self._changed.set()

    async def wait_for_updates(self, patience_seconds: float | None = None) -> list[DownloadResponse] | None:
        """What is new; an empty list when nothing was for so long, None when there will be nothing more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await self._changed.wait()
        self._changed.clear()
        found = list(self._pending.values())
        self._pending.clear()
        if self.ending is not None:
            self._changed.set()
            return found or None
        return found
