"""Lanes that rest: what was read of one is told again, as long as its history has not gone on.

A lane changes with a step of its history and in no other way, and to ask the engine how long that is costs a quarter of
a query. So of a lane that was looked at again and again without anything having happened all tasks are read once; from
then on whoever reads has the engine asked whether that is still how it stands, now and not a while ago.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from domain.tasks.messages import Found, Head, Search, Task

LOOKS = 3
"""After so many in vain a lane rests."""
LANES_MAX = 16
"""Some thousand tasks each."""

LaneName: TypeAlias = tuple[str, int]
"""A type and a position."""
Mark: TypeAlias = tuple[str, int]
"""A run, and how long its history is."""


@dataclass(slots=True)
class _Known:
    """How a lane stood."""

    number: int
    looks: int = 0
    mark: Mark | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)


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

    def note(self, lane: LaneName, number: int) -> None:
        """A lane was asked for something; its head has this number now."""
        known = self._lanes.pop(lane, None)
        if known is None or known.number != number:
            known = _Known(number)
        known.looks += 1
        self._lanes[lane] = known
        if len(self._lanes) > LANES_MAX:
            self._lanes.pop(next(iter(self._lanes)))

    async def tasks(self, lane: LaneName) -> Mapping[str, Task] | None:
        """All tasks that are in a lane now, if it rests."""
        known = self._lanes.get(lane)
        if known is None or known.looks <= LOOKS:
            return None
        # Asked before the tasks are read: what happens in between makes them old, never new ones look old.
        mark = await self._mark(lane)
        if known.mark is None and (tasks := await self._all(lane, known.number)) is not None:
            known.mark, known.tasks = mark, tasks
        if known.mark == mark:
            return known.tasks
        self._lanes.pop(lane, None)
        return None

    async def _all(self, lane: LaneName, number: int) -> dict[str, Task] | None:
        """All tasks of a lane that stands as it did."""
        found: dict[str, Task] = {}
        page = Search()
        while True:
            told = await self._search(lane, page)
            before = len(found)
            found |= {task.key: task for task in told.tasks}
            if told.head.number != number:
                return None
            if len(found) >= _live(told.head):
                return found
            if len(found) == before:
                return None
            last = told.tasks[-1]
            page = Search(before=last.create_time, before_key=last.key)


def _live(head: Head) -> int:
    return head.pending + head.running + head.success + head.failed - head.archived
