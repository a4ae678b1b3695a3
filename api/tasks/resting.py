"""Lanes that rest: what was read of one is told again, as long as its history has not gone on.

A lane changes with a step of its history and in no other way, and to ask the engine how long that is costs a third of
a query. So of a lane that was looked at again and again without anything having happened all tasks are read once; from
then on whoever reads has the engine asked whether that is still how it stands, now and not a while ago.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from domain.tasks.messages import Found, Head, Search, Task
from infra import log

LOOKS = 8
"""After so many in vain a lane rests: by then to have read it all costs little more than what was spent on looks."""
LANES_MAX = 16
"""Some thousand tasks each."""
KEPT_SECONDS = 2.0
"""A lane that was asked so short a time ago makes no room for another: of lanes that take turns none would be kept."""
PAGE_TASKS = 2_000
"""So many are read at a time, or as many as a message carries: others wait for the lane meanwhile."""

LaneName: TypeAlias = tuple[str, int]
"""A type and a position."""
Mark: TypeAlias = tuple[str, int]
"""A run, and how long its history is."""

_log = log.get(__name__)


@dataclass(slots=True)
class _Known:
    """How a lane stood."""

    number: int
    looks: int = 0
    asked_at: float = 0.0
    mark: Mark | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)
    reading: asyncio.Task[None] | None = None


class Resting:
    """The tasks of lanes in which nothing happens.

    Args:
        mark: How far a lane has come, asked anew.
        search: Tasks of a lane, the newest first.
    """

    def __init__(
        self, mark: Callable[[LaneName], Awaitable[Mark]], search: Callable[[LaneName, Search], Awaitable[Found]]
    ) -> None:
        self._mark = mark
        self._search = search
        self._lanes: dict[LaneName, _Known] = {}

    def rests(self, lane: LaneName) -> bool:
        """Whether a lane rested when it was asked last."""
        known = self._lanes.get(lane)
        return known is not None and known.mark is not None

    def note(self, lane: LaneName, number: int) -> None:
        """A lane was asked for something; its head has this number now."""
        known = self._lanes.pop(lane, None)
        if known is None and not self._has_room():
            return
        if known is None or known.number != number:
            known = _Known(number)
        known.looks += 1
        self._keep(lane, known)

    async def tasks(self, lane: LaneName) -> Mapping[str, Task] | None:
        """All tasks that are in a lane now, if it rests."""
        known = self._lanes.get(lane)
        if known is None or known.looks <= LOOKS:
            return None
        self._keep(lane, self._lanes.pop(lane))
        if known.reading is None:
            # By the way: until all is read, the lane is looked at as before.
            known.reading = asyncio.create_task(self._read(lane, known))
        if known.mark is None:
            return None
        if await self._mark(lane) == known.mark:
            return known.tasks
        self._forget(lane, known)
        return None

    async def _read(self, lane: LaneName, known: _Known) -> None:
        try:
            # Asked before the tasks are read: what happens in between makes them old, never old ones look new.
            mark = await self._mark(lane)
            tasks = await self._all(lane, known.number)
        except Exception as error:  # noqa: BLE001 - whoever asks the lane next is told
            tasks = None
            _log.warning("lane_not_read", type=lane[0], pos=lane[1], error=repr(error))
        if tasks is None:
            self._forget(lane, known)
        else:
            known.tasks, known.mark = tasks, mark

    def _keep(self, lane: LaneName, known: _Known) -> None:
        """As the one that was asked last."""
        known.asked_at = time.monotonic()
        self._lanes[lane] = known

    def _has_room(self) -> bool:
        """Whether one more lane may be kept; the one that was asked longest ago goes, if that is a while."""
        if len(self._lanes) < LANES_MAX:
            return True
        name, oldest = next(iter(self._lanes.items()))
        if time.monotonic() - oldest.asked_at < KEPT_SECONDS:
            return False
        del self._lanes[name]
        return True

    def _forget(self, lane: LaneName, known: _Known) -> None:
        if self._lanes.get(lane) is known:
            del self._lanes[lane]

    async def _all(self, lane: LaneName, number: int) -> dict[str, Task] | None:
        """All tasks of a lane that stands as it did."""
        found: dict[str, Task] = {}
        while True:
            told = await self._search(lane, Search(limit=PAGE_TASKS, begin=len(found)))
            before = len(found)
            found |= {task.key: task for task in told.tasks}
            if told.head.number != number:
                return None
            if len(found) >= _live(told.head):
                return found
            if len(found) == before:
                return None


def _live(head: Head) -> int:
    return head.pending + head.running + head.success + head.failed + head.cancelled - head.archived
