"""Searching lanes: the first alone, which often has enough, and then many at a time; told in the order asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from api.tasks.calls import Over
from api.tasks.room import Desk
from api.tasks.types import TaskType
from domain.tasks.ids import TaskId
from domain.tasks.messages import Search, Task

LANES_AT_A_TIME: Final = 16
"""For one caller: each takes some milliseconds of engine and worker, and answers up to a megabyte."""

Wish: TypeAlias = tuple[int, Search]
"""A position, and what is wanted of its lane."""
Turns: TypeAlias = asyncio.Semaphore


def turns() -> Turns:
    """What one caller takes to ask lanes."""
    return asyncio.Semaphore(LANES_AT_A_TIME)


async def in_lanes(
    here: Desk, kind: TaskType, wishes: Sequence[Wish], enough: int, turns: Turns
) -> list[tuple[str, Task]]:
    """What lanes have, with the tasks' ids, in the order of the wishes; a few more, perhaps, than were enough."""
    found: list[tuple[str, Task]] = []
    some, rest = wishes[:1], wishes[1:]
    while some and len(found) < enough:
        for tasks in await asyncio.gather(*(_ask(here, kind, *wish, turns) for wish in some)):
            found += tasks
        some, rest = rest[:LANES_AT_A_TIME], rest[LANES_AT_A_TIME:]
    return found


async def _ask(here: Desk, kind: TaskType, pos: int, wanted: Search, turns: Turns) -> list[tuple[str, Task]]:
    async with turns:
        try:
            tasks = (await here.lanes.search((kind.type, pos), wanted)).tasks
        except Over:
            return []
    return [(str(TaskId(task.key, kind.name, pos)), task) for task in tasks]
