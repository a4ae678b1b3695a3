"""Cache of the tasks of idle lanes, valid as long as the lane's history does not grow.

A lane changes only with an event in its history, and asking the engine for the length of the history costs a third of a
query. After several reads of a lane without a change, all its tasks are read once; later reads only check the history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from domain.tasks.messages import LaneHead, Task, TaskSearch, TaskSearchReply
from domain.tasks.names import LaneName
from infra import log

UNCHANGED_READS = 8
"""A lane counts as idle after this many reads without a change: reading it all costs little more than they did."""
LANES_MAX = 16
"""Lanes in the cache, with some thousand tasks each."""
PROTECTED_SECONDS = 2.0
"""A lane that was read this recently is not evicted; else lanes that are read in turn would evict each other."""
PAGE_TASKS = 2_000
"""Tasks per query, as other requests wait for the lane meanwhile; a reply may hold fewer."""

HistoryPosition: TypeAlias = tuple[str, int]
"""A run, and the length of its history."""

_log = log.get(__name__)


@dataclass(slots=True)
class _IdleLane:
    number: int
    reads: int = 0
    read_at: float = 0.0
    position: HistoryPosition | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)
    loading: asyncio.Task[None] | None = None


class IdleLaneCache:
    """All tasks of lanes that do not change.

    Args:
        read_position: Reads the current history position of a lane.
        search: Queries the tasks of a lane.
    """

    def __init__(
        self,
        read_position: Callable[[LaneName], Awaitable[HistoryPosition]],
        search: Callable[[LaneName, TaskSearch], Awaitable[TaskSearchReply]],
    ) -> None:
        self._read_position = read_position
        self._search = search
        self._lanes: dict[LaneName, _IdleLane] = {}

    def is_cached(self, lane: LaneName) -> bool:
        """Return whether the tasks of a lane are cached; they may be outdated."""
        known = self._lanes.get(lane)
        return known is not None and known.position is not None

    def record_read(self, lane: LaneName, number: int) -> None:
        """Record that a lane was queried and that its head has this number."""
        known = self._lanes.pop(lane, None)
        if known is None and not self._make_space():
            return
        if known is None or known.number != number:
            known = _IdleLane(number)
        known.reads += 1
        self._move_to_end(lane, known)

    async def get_tasks(self, lane: LaneName) -> Mapping[str, Task] | None:
        """Return all current tasks of a lane by key; None if they are not cached or have changed."""
        known = self._lanes.get(lane)
        if known is None or known.reads <= UNCHANGED_READS:
            return None
        self._move_to_end(lane, self._lanes.pop(lane))
        if known.loading is None:
            # In the background: until it is done, the lane is queried as before.
            known.loading = asyncio.create_task(self._load(lane, known))
        if known.position is None:
            return None
        if await self._read_position(lane) == known.position:
            return known.tasks
        self._remove(lane, known)
        return None

    async def _load(self, lane: LaneName, known: _IdleLane) -> None:
        try:
            # The position first: a change in between makes the tasks look outdated, never outdated tasks look current.
            position = await self._read_position(lane)
            tasks = await self._read_all(lane, known.number)
        except Exception as error:  # noqa: BLE001 - the next request queries the lane and gets the error
            tasks = None
            _log.warning("idle_lane_read_failed", type=lane[0], pos=lane[1], error=repr(error))
        if tasks is None:
            self._remove(lane, known)
        else:
            known.tasks, known.position = tasks, position

    def _move_to_end(self, lane: LaneName, known: _IdleLane) -> None:
        known.read_at = time.monotonic()
        self._lanes[lane] = known

    def _make_space(self) -> bool:
        """Evict the lane that was read least recently, if that is needed; False if it was read too recently."""
        if len(self._lanes) < LANES_MAX:
            return True
        name, oldest = next(iter(self._lanes.items()))
        if time.monotonic() - oldest.read_at < PROTECTED_SECONDS:
            return False
        del self._lanes[name]
        return True

    def _remove(self, lane: LaneName, known: _IdleLane) -> None:
        if self._lanes.get(lane) is known:
            del self._lanes[lane]

    async def _read_all(self, lane: LaneName, number: int) -> dict[str, Task] | None:
        """Read all tasks of a lane; None if it has changed."""
        tasks: dict[str, Task] = {}
        while True:
            reply = await self._search(lane, TaskSearch(limit=PAGE_TASKS, offset=len(tasks)))
            before = len(tasks)
            tasks |= {task.key: task for task in reply.tasks}
            if reply.head.number != number:
                return None
            if len(tasks) >= _count_live(reply.head):
                return tasks
            if len(tasks) == before:
                return None


def _count_live(head: LaneHead) -> int:
    return head.pending + head.running + head.success + head.failed + head.cancelled - head.archived
