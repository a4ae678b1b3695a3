"""The board: one look serves everybody who asks within two seconds, and looking never takes much of the time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Generic, TypeVar

from api.downloads.answers import ListedDownload
from api.overview import counts, engine
from api.overview.answers import Concern, Overview, Part, Queue, Room, RoomFigures, Trouble
from api.overview.standing import Standing, Standings, merged, together
from infra import log
from services.services import Services

FRESH_SECONDS: Final = 2.0
ENGINE_SECONDS: Final = 20.0
"""The engine's index takes ten questions a second from everybody together."""
SHARE: Final = 20
"""A look that took long is good for so many times as long."""

UNITS: Final = {
    Room.DOWNLOADS: "downloads",
    Room.TRANSFERS: "targets",
    Room.ORDERS: "slices",
    Room.ADDRESSES: "messages",
    Room.TASKS: "tasks",
}

Seen = TypeVar("Seen")

_log = log.get(__name__)


class Look(Generic[Seen]):
    """What was seen a moment ago, or what is seen now."""

    def __init__(self, see: Callable[[], Awaitable[Seen]], seconds: float = FRESH_SECONDS) -> None:
        self._see = see
        self._seconds = seconds
        self._good_until = 0.0
        self._looking: asyncio.Task[Seen] | None = None

    async def seen(self) -> Seen:
        """What there is to see; whoever comes while somebody looks sees the same."""
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._good_until):
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> Seen:
        begun = time.monotonic()
        try:
            return await self._see()
        finally:
            now = time.monotonic()
            self._good_until = max(begun + self._seconds, now + SHARE * (now - begun))


class Board:
    """What this process has seen of the whole."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._parts = Look(self._ask_parts)
        self._queues = Look(self._ask_queues, ENGINE_SECONDS)
        self._unrecorded = Look(self._ask_unrecorded, ENGINE_SECONDS)
        database = services.database
        self._rooms: dict[Room, Look[Standings]] = {
            Room.DOWNLOADS: Look(self._count_downloads),
            Room.TRANSFERS: Look(counts.Transfers(database).count),
            Room.ORDERS: Look(partial(counts.orders, database)),
            Room.ADDRESSES: Look(partial(counts.addresses, database, services.settings.addresses)),
            Room.TASKS: Look(partial(counts.tasks, database)),
        }

    async def read(self, project_id: str | None, *, is_admin: bool) -> Overview:
        """The whole, as this caller may see it."""
        rooms = [room for room in Room if is_admin or room is not Room.ADDRESSES]
        parts, queues, standings = await asyncio.gather(
            self._parts.seen(), self._queues.seen(), asyncio.gather(*(self._rooms[room].seen() for room in rooms))
        )
        now = datetime.now(UTC)
        figures = [
            self._figures(room, _within(project_id, room, each), queues, now)
            for room, each in zip(rooms, standings, strict=True)
        ]
        if not is_admin:
            return Overview(at=now, project_id=project_id, parts=parts, rooms=figures, queues=[])
        linked = [each.model_copy(update={"engine_url": self._url(each.room, project_id)}) for each in figures]
        return Overview(at=now, project_id=project_id, parts=parts, rooms=linked, queues=queues)

    def _figures(self, room: Room, own: Standing, queues: list[Queue], now: datetime) -> RoomFigures:
        idle = sum(1 for queue in queues if queue.room is room and not queue.workers)
        concerns = own.concerns + Counter({Trouble.NO_WORKER: idle})
        return RoomFigures(
            room=room,
            unit=UNITS[room],
            running=own.running.count,
            waiting=own.waiting.count,
            failed=own.failed.count,
            failed_since=self._failed_since(room, now),
            oldest_running_seconds=own.running.seconds(now),
            oldest_waiting_seconds=own.waiting.seconds(now),
            oldest_failed_seconds=own.failed.seconds(now),
            concerns=[Concern(trouble=trouble, count=count) for trouble, count in sorted(concerns.items())],
        )

    def _url(self, room: Room, project_id: str | None) -> str | None:
        ui_url = self._services.settings.engine.ui_url
        return engine.url(ui_url, self._services.engine.namespace, room, project_id) if ui_url else None

    def _failed_since(self, room: Room, now: datetime) -> datetime | None:
        match room:
            case Room.DOWNLOADS | Room.TASKS:
                return now - counts.FAILED_WITHIN
            case Room.TRANSFERS:
                return now - timedelta(seconds=self._services.settings.transfers.kept_seconds)
            case Room.ORDERS | Room.ADDRESSES:
                return None

    async def _count_downloads(self) -> Standings:
        database = self._services.database
        waiting = await engine.waiting(database, await self._unrecorded.seen())
        return merged(await counts.downloads(database), waiting)

    async def _ask_parts(self) -> list[Part]:
        return list(await asyncio.gather(*(self._ask_part(name) for name in self._services.pings)))

    async def _ask_part(self, name: str) -> Part:
        begun = time.perf_counter()
        fails = await self._services.fails(name)
        milliseconds = None if fails else round((time.perf_counter() - begun) * 1000, 1)
        return Part(name=name, ok=not fails, milliseconds=milliseconds)

    async def _ask_queues(self) -> list[Queue]:
        try:
            return await engine.queues(self._services)
        except Exception as error:  # noqa: BLE001 (the part itself is told to be down; the rest is worth seeing)
            _log.warning("queues_not_read", error=repr(error))
            return []

    async def _ask_unrecorded(self) -> list[ListedDownload]:
        try:
            return await engine.unrecorded(self._services)
        except Exception as error:  # noqa: BLE001 (as above)
            _log.warning("pending_downloads_not_read", error=repr(error))
            return []


def _within(project_id: str | None, room: Room, standings: Standings) -> Standing:
    """What is a project's; of addresses all, because they belong to none."""
    if project_id is None or room is Room.ADDRESSES:
        return together(standings.values())
    return standings.get(project_id, Standing())
