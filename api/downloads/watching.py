"""Watching downloads: one poller per watched download and process, for all its subscribers; ends arrive by LISTEN."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from enum import StrEnum

from aiohttp import web

from api.downloads.responses import (
    STATUS_CACHE_SECONDS,
    STATUS_READER,
    DownloadKey,
    DownloadResponse,
    DownloadStatusReader,
)
from domain.downloads.models import DownloadState
from domain.faults import Missing, QuotaExhausted
from domain.quotas import STREAMS_QUOTA
from infra import log, metrics
from infra.database import LISTENING, Database
from services.services import Services
from stores.downloads import catalogue
from stores.downloads.catalogue import CHANNEL

POLLED_PER_PROJECT_MAX = 50
"""Running downloads of a project that are polled for its subscribers; of others only the end is reported."""

TOO_MANY_STREAMS = "too_many_streams"
STREAM_RETRY_SECONDS = 5

_RECENTLY_ENDED = timedelta(minutes=1)

_log = log.get(__name__)
BACKLOG_MAX = 1_000
"""A subscriber with this many pending downloads is disconnected."""


class DownloadWatchRegistry:
    """The pollers and subscriptions of this process."""

    def __init__(self, status_reader: DownloadStatusReader, database: Database, streams_per_project: int) -> None:
        self._status_reader = status_reader
        self._database = database
        self._streams_per_project = streams_per_project
        self._streams: Counter[str] = Counter()
        self._pollers: dict[DownloadKey, DownloadStatusPoller] = {}
        self._project_subscriptions: defaultdict[str, set[LatestStatesSubscription]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start_listening(self, _app: web.Application) -> None:
        """Start to listen for notifications."""
        self._listening = asyncio.create_task(self._follow_notifications())

    async def end_all_streams(self, _app: web.Application) -> None:
        """End every stream, so that the server need not wait for its subscribers."""
        self._is_stopping = True
        everybody = [
            *self._project_subscriptions.values(),
            *(poller.subscriptions for poller in self._pollers.values()),
        ]
        for subscription in {subscription for subscriptions in everybody for subscription in subscriptions}:
            subscription.end(SubscriptionEndReason.STOPPING)
        tasks = [poller.task for poller in self._pollers.values()]
        self._pollers.clear()
        if self._listening is not None:
            tasks.append(self._listening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def count_stream_within_limit(self, project_id: str) -> Iterator[None]:
        """Count an open stream of a project.

        Raises:
            QuotaExhausted: The project has too many.
        """
        if self._streams[project_id] >= self._streams_per_project:
            raise QuotaExhausted(
                TOO_MANY_STREAMS,
                f"This project holds {self._streams_per_project} streams open here, as many as it may.",
                "Close one; GET /v1/downloads/ws streams all downloads over a single connection.",
                violated=[STREAMS_QUOTA],
                retry_after_seconds=STREAM_RETRY_SECONDS,
            )
        self._streams[project_id] += 1
        try:
            yield
        finally:
            self._streams[project_id] -= 1
            self._streams += Counter()  # removes projects whose count is zero

    @asynccontextmanager
    async def watch_download(self, project_id: str, task_id: str) -> AsyncIterator[LatestStatesSubscription]:
        """Watch one download from its current state to its end.

        Raises:
            Missing: The project has no such download.
        """
        first = await self._status_reader.read_status(project_id, task_id)
        subscription = LatestStatesSubscription()
        if first.state.is_final:
            subscription.queue_or_end_if_too_slow(first)
            subscription.end(SubscriptionEndReason.FINISHED)
            yield subscription
            return
        poller = self._get_or_start_poller(project_id, task_id)
        poller.add_subscription(subscription, first)
        self._end_if_stopping(subscription)
        try:
            with metrics.WATCHERS.track_inprogress():
                yield subscription
        finally:
            poller.subscriptions.discard(subscription)
            self._stop_unwatched_pollers([poller])

    @asynccontextmanager
    async def watch_project(self, project_id: str) -> AsyncIterator[LatestStatesSubscription]:
        """Watch all downloads of a project: those that run now, and those to come."""
        subscription = LatestStatesSubscription()
        self._project_subscriptions[project_id].add(subscription)
        try:
            await self._start_pollers_of_unfinished_or_recent(project_id)
            for poller in self._list_pollers(project_id):
                if poller.last is not None:
                    subscription.queue_or_end_if_too_slow(poller.last)
            self._end_if_stopping(subscription)
            with metrics.WATCHERS.track_inprogress():
                yield subscription
        finally:
            self._project_subscriptions[project_id].discard(subscription)
            if not self._project_subscriptions[project_id]:
                del self._project_subscriptions[project_id]
            self._stop_unwatched_pollers(self._list_pollers(project_id))

    def _end_if_stopping(self, subscription: LatestStatesSubscription) -> None:
        if self._is_stopping:
            subscription.end(SubscriptionEndReason.STOPPING)

    def _get_or_start_poller(self, project_id: str, task_id: str) -> DownloadStatusPoller:
        key = (project_id, task_id)
        if key not in self._pollers or self._pollers[key].task.done():
            poller = self._pollers[key] = DownloadStatusPoller(self._status_reader, key, self._project_subscriptions)
            poller.task.add_done_callback(lambda _: self._remove_poller_unless_replaced(poller))
        return self._pollers[key]

    def _list_pollers(self, project_id: str) -> list[DownloadStatusPoller]:
        return [poller for key, poller in self._pollers.items() if key[0] == project_id]

    def _stop_unwatched_pollers(self, pollers: Iterable[DownloadStatusPoller]) -> None:
        for poller in pollers:
            if not poller.has_subscribers:
                poller.task.cancel()
                self._remove_poller_unless_replaced(poller)

    def _remove_poller_unless_replaced(self, poller: DownloadStatusPoller) -> None:
        if self._pollers.get(poller.key) is poller:
            del self._pollers[poller.key]

    async def _follow_notifications(self) -> None:
        async for payload in self._database.listen(CHANNEL):
            if payload == LISTENING:
                # What was notified before, or while the connection was lost, did not arrive.
                await self._refresh_or_start_all_pollers()
                continue
            try:
                self._refresh_or_start_poller(json.loads(payload))
            except (ValueError, LookupError) as error:
                # Another version may send what this one does not know.
                _log.warning("download_notification_unreadable", error=repr(error))

    def _refresh_or_start_poller(self, notification: dict[str, str]) -> None:
        """Handle a notification that a download began or ended."""
        key = (notification["project_id"], notification["task_id"])
        poller = self._pollers.get(key)
        if poller is not None and not poller.task.done():
            poller.request_catalogue_read()
        elif key[0] in self._project_subscriptions and (
            DownloadState(notification["state"]).is_final or len(self._list_pollers(key[0])) < POLLED_PER_PROJECT_MAX
        ):
            self._get_or_start_poller(*key)

    async def _refresh_or_start_all_pollers(self) -> None:
        """Refresh everything that may have changed while the connection was lost."""
        for poller in self._pollers.values():
            poller.request_catalogue_read()
        for project_id in list(self._project_subscriptions):
            try:
                await self._start_pollers_of_unfinished_or_recent(project_id)
            except Exception as error:  # noqa: BLE001 (the next notification must be handled in any case)
                _log.warning("download_watch_refresh_failed", project_id=project_id, error=repr(error))

    async def _start_pollers_of_unfinished_or_recent(self, project_id: str) -> None:
        """Poll what runs in a project or ended so recently that its notification may have been missed."""
        found = await catalogue.list_unfinished_or_recently_ended(
            self._database, project_id, ended_within=_RECENTLY_ENDED, limit=POLLED_PER_PROJECT_MAX
        )
        for task_id in found:
            self._get_or_start_poller(project_id, task_id)


WATCH_REGISTRY = web.AppKey("downloads_watch_registry", DownloadWatchRegistry)


def add_status_reader_and_watch_registry(app: web.Application, services: Services) -> None:
    """Add the status reader and the watch registry to the application."""
    status_reader = app[STATUS_READER] = DownloadStatusReader(services)
    watches = app[WATCH_REGISTRY] = DownloadWatchRegistry(
        status_reader, services.database, services.settings.api.streams_per_project
    )
    app.on_startup.append(watches.start_listening)
    app.on_shutdown.append(watches.end_all_streams)


class DownloadStatusPoller:
    """Reads the status of one download until its end, and pushes every change to its subscriptions.

    Args:
        status_reader: Reads the status.
        key: The project and the download.
        project_subscriptions: Subscriptions to whole projects, which receive the changes too.
    """

    def __init__(
        self,
        status_reader: DownloadStatusReader,
        key: DownloadKey,
        project_subscriptions: Mapping[str, set[LatestStatesSubscription]],
    ) -> None:
        self.key = key
        self.subscriptions: set[LatestStatesSubscription] = set()
        self.last: DownloadResponse | None = None
        self._status_reader = status_reader
        self._project_subscriptions = project_subscriptions
        self._changed = asyncio.Event()
        # The first read takes the state from the catalogue, as notifications may have been missed.
        self._changed.set()
        self.task = asyncio.create_task(self._poll_until_final())

    @property
    def has_subscribers(self) -> bool:
        """Whether there is a subscription."""
        return bool(self.subscriptions) or self.key[0] in self._project_subscriptions

    def add_subscription(self, subscription: LatestStatesSubscription, first: DownloadResponse) -> None:
        """Add a subscription, which starts with the state that the others have."""
        self.subscriptions.add(subscription)
        self.last = self.last or first
        subscription.queue_or_end_if_too_slow(self.last)

    def request_catalogue_read(self) -> None:
        """Read the catalogue, since the download began or ended."""
        self._changed.set()

    async def _poll_until_final(self) -> None:
        while self.last is None or not self.last.state.is_final:
            try:
                status = await self._read_status_or_progress()
            except Missing:
                break
            except Exception as error:  # noqa: BLE001 (an outage ends no subscription: the next read may succeed)
                _log.warning("download_status_read_failed", task_id=self.key[1], error=repr(error))
            else:
                self._push_if_changed(status)
            await self._wait_for_change()
        # Subscriptions to the whole project go on with its other downloads.
        for subscription in self.subscriptions:
            subscription.end(SubscriptionEndReason.FINISHED)

    async def _read_status_or_progress(self) -> DownloadResponse:
        # The catalogue says that a download began or ended, and is read then only; the workflow says how far it is.
        if self.last is None or self._changed.is_set():
            self._changed.clear()
            return await self._status_reader.read_status(*self.key)
        return await self._status_reader.read_status_while_running(self.key[0], self.last)

    async def _wait_for_change(self) -> None:
        if self.last is not None and self.last.state.is_final:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_CACHE_SECONDS):
                await self._changed.wait()

    def _push_if_changed(self, response: DownloadResponse) -> None:
        """Push a change. Rows never decrease while it runs: rows that are fetched again are not counted twice."""
        if self.last is not None and not response.state.is_final:
            response = response.model_copy(update={"rows": max(response.rows, self.last.rows)})
        if self.last is not None and _remove_rows_per_second(response) == _remove_rows_per_second(self.last):
            return
        self.last = response
        for subscription in [
            *self.subscriptions,
            *self._project_subscriptions.get(self.key[0], set[LatestStatesSubscription]()),
        ]:
            subscription.queue_or_end_if_too_slow(response)


def _remove_rows_per_second(response: DownloadResponse) -> DownloadResponse:
    """Return the response without the figure that changes every second."""
    return response.model_copy(update={"rows_per_second": None})


class SubscriptionEndReason(StrEnum):
    """Why a subscription ended."""

    FINISHED = "the download is over"
    STOPPING = "this server stops; connect again"
    TOO_SLOW = "too slow to keep up; connect again"
    LEFT = "the watcher left"
    KEY_REVOKED = "the key was revoked"


class LatestStatesSubscription:
    """The updates that a subscriber has not received yet: only the latest of each download, so that it stays small."""

    def __init__(self) -> None:
        self.ending: SubscriptionEndReason | None = None
        self._pending: dict[str, DownloadResponse] = {}
        self._changed = asyncio.Event()

    def queue_or_end_if_too_slow(self, response: DownloadResponse) -> None:
        """Add an update."""
        if self.ending is not None:
            return
        self._pending[response.task_id] = response
        self._changed.set()
        if len(self._pending) > BACKLOG_MAX:
            self._pending.clear()
            self.end(SubscriptionEndReason.TOO_SLOW)

    def end(self, reason: SubscriptionEndReason) -> None:
        """End the subscription; pending updates are still delivered."""
        self.ending = self.ending or reason
        self._changed.set()

    async def wait_for_updates(self, timeout_seconds: float | None = None) -> list[DownloadResponse] | None:
        """Wait for updates; return an empty list after a timeout, and None when there will be no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        self._changed.clear()
        found = list(self._pending.values())
        self._pending.clear()
        if self.ending is not None:
            self._changed.set()
            return found or None
        return found
