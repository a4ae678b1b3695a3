"""Many lanes are searched at a time, with the same result as one after the other."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.tasks import overview, queries
from api.tasks.overview import TaskPageCursor, TaskPageItem
from api.tasks.queries import LANES_AT_A_TIME
from api.tasks.requests import BrowseTasksQuery
from domain.tasks import attempts
from domain.tasks.messages import (
    REPLY_MAX_BYTES,
    CreateOperation,
    HoldOperation,
    LaneBatch,
    LaneHead,
    SetOperation,
    Task,
    TaskSearch,
    TaskSearchReply,
)
from stores.tasks import archive
from tests.support.lane_driver import LaneDriver
from workflows.tasks.handle import LaneClosed

KIND: Any = SimpleNamespace(type="prj_1/video", name="video")


@dataclass
class FixedLanes:
    """Lanes with these numbers of tasks; None is a closed lane."""

    tasks: list[int | None]
    asked: list[int] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    async def search_tasks(self, lane: tuple[str, int], wanted: TaskSearch) -> TaskSearchReply:
        """What one has, after others had their turn."""
        self.asked.append(lane[1])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(1 + secrets.randbelow(5)):
            await asyncio.sleep(0)
        self.under_way -= 1
        count = self.tasks[lane[1]]
        if count is None:
            raise LaneClosed
        task = Task("", "", 0, 1, "", 0, "", "", 0, 0, 0, 0)
        return TaskSearchReply([task] * min(count, wanted.limit), LaneHead())

    async def search_positions(self, enough: int) -> list[int]:
        """The positions of what is found, in its order."""
        wishes = [(pos, TaskSearch(limit=enough)) for pos in range(len(self.tasks))]
        here: Any = SimpleNamespace(lanes=self)
        search_positions = await queries.search_lanes_in_order_until_enough(
            here, KIND, wishes, enough, asyncio.Semaphore(LANES_AT_A_TIME)
        )
        return [int(task_id.rpartition("_")[2]) for task_id, _ in search_positions]


@given(tasks=st.lists(st.none() | st.integers(0, 9), max_size=60), enough=st.integers(1, 40))
async def test_what_is_found_is_what_asking_one_by_one_would_find(tasks: list[int | None], enough: int) -> None:
    """In the same order; there may be more of it."""
    one_by_one: list[int] = []
    for pos, count in enumerate(tasks):
        if len(one_by_one) < enough:
            one_by_one += [pos] * min(count or 0, enough)
    lanes = FixedLanes(tasks)

    search_positions = await lanes.search_positions(enough)

    assert search_positions[: len(one_by_one)] == one_by_one
    assert sorted(search_positions) == search_positions
    assert lanes.most <= LANES_AT_A_TIME
    assert len(one_by_one) >= enough or lanes.asked == [*range(len(tasks))]


async def test_the_first_lane_is_asked_alone() -> None:
    """It often has enough; otherwise the others are searched concurrently."""
    lanes = FixedLanes([5] * 40)
    assert await lanes.search_positions(5) == [0] * 5
    assert lanes.asked == [0]

    lanes = FixedLanes([0] * 40)
    assert await lanes.search_positions(1) == []
    assert lanes.most == LANES_AT_A_TIME


@pytest.mark.parametrize("told", [True, False])
def test_a_search_tells_attempts_only_to_who_wants_them(told: bool) -> None:
    """A list shows none, and has more space for tasks."""
    asked = LaneDriver()
    key = asked.create()
    [[held]] = asked.lane.apply_batch(LaneBatch("other", 1, holds=[HoldOperation(1)]), asked.now).holds
    asked.ask(sets=[SetOperation(held.key, 1)])

    [search_positions] = asked.lane.search_tasks(TaskSearch(with_attempts=told)).tasks
    assert search_positions.key == key
    assert len(attempts.decode_attempts(search_positions)[0]) == int(told)
    assert len(attempts.decode_attempts(asked.read(key))[0]) == 1


async def test_what_does_not_fit_into_one_reply_of_a_lane_is_asked_for() -> None:
    """Older lanes and the archive were listed behind it, without the tasks that had been cut off."""
    asked = LaneDriver(lane_max_tasks=20_000, schedule_limit=150)
    texts = {"content": "x" * 450, "log": "y" * 500}
    while not asked.ask(creates=[CreateOperation(secrets.token_hex(16), "u" * 100, texts["content"])]).head.full:
        asked.wait(0.001)
    [[*held]] = asked.lane.apply_batch(LaneBatch("other", 1, holds=[HoldOperation(150)]), asked.now).holds
    asked.ask(sets=[SetOperation(task.key, 2, log=texts["log"]) for task in held])
    everything = asked.lane.state.tasks.values()
    assert asked.lane.state.weight > REPLY_MAX_BYTES

    class OneLane:
        async def search_tasks(self, lane: tuple[str, int], wanted: TaskSearch) -> TaskSearchReply:
            """What the lane answers."""
            return asked.lane.search_tasks(wanted)

    async def search(limit: int) -> list[str]:
        here: Any = SimpleNamespace(lanes=OneLane())
        wishes = [(1, TaskSearch(limit=limit, with_attempts=False))]
        found = await queries.search_lanes_in_order_until_enough(here, KIND, wishes, limit, asyncio.Semaphore(1))
        return [task.key for _, task in found]

    newest = [task.key for task in sorted(everything, key=lambda task: (task.create_time, task.key), reverse=True)]
    assert await search(2_000) == newest
    assert await search(len(newest) - 1) == newest[:-1]


async def test_a_page_of_the_archive_is_as_long_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that their lane still has are left out; the page was shorter then, and was taken for the last."""
    archived = [(f"{number:032x}_video_1", Task("", "", 0, 3, "", 0, "", "", 0, 0, 0, 0)) for number in range(9)]

    async def list_page(_database: object, *arguments: Any) -> Any:
        return archived[: arguments[-1]]

    monkeypatch.setattr(archive, "list_archived_task_page", list_page)
    here: Any = SimpleNamespace(database=None)
    live = [TaskPageItem(*archived[0]), TaskPageItem(*archived[1])]
    query = BrowseTasksQuery(task_type="video", limit=4)

    found = await overview._read_archived_tasks_of_page(here, KIND, query, TaskPageCursor(0), live, 3)
    assert [item.task_id for item in found] == [task_id for task_id, _ in archived[2:5]]
