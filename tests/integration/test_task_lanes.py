"""Tasks in many lanes and through several API processes: none is lost or found twice, and all processes agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from api.http.routes import Call
from api.tasks import holds, lane_caches
from domain.tasks import lane
from infra.settings import Settings
from tests.support.api import running_api
from tests.support.tasks import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, Tasks, good, running_tasks
from tests.support.waiting import eventually
from workflows.tasks import handle

pytestmark = pytest.mark.stack

LANE_TASKS = 10


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[Tasks]:
    """An API, a worker, and a type of tasks whose lanes are small."""
    async with running_tasks(settings, lane_max_tasks=LANE_TASKS) as queue:
        await queue.register()
        yield queue


@asynccontextmanager
async def beside(queue: Tasks) -> AsyncIterator[Tasks]:
    """Another API process."""
    async with running_api(queue.api_client.settings) as api_client:
        yield replace(queue, api_client=api_client)


def position(task_id: str) -> int:
    """The lane that an id names."""
    return int(task_id.rpartition("_")[2])


async def span(queue: Tasks) -> tuple[int, int]:
    """The first lane that is not done, and the last."""
    config = await queue.config()
    return config["schedule_begin_pos"], config["schedule_end_pos"]


async def finish_all(queue: Tasks) -> int:
    """Hold and end tasks as long as some are due; how many."""
    count = 0
    while held := await queue.hold(wait=1):
        await queue.finish(held)
        count += len(held)
    return count


async def test_a_full_lane_hands_on_to_the_next(queue: Tasks) -> None:
    """No create is refused for it, and all tasks are found wherever they are."""
    task_ids = await queue.create_many(35)
    assert Counter(map(position, task_ids)) == {1: 10, 2: 10, 3: 10, 4: 5}
    assert await span(queue) == (1, 4)
    assert (await queue.counts())["pending"] == 35
    assert sorted(task["task_id"] for task in await queue.hold()) == sorted(task_ids)


async def test_the_next_lane_is_begun_before_it_is_needed(queue: Tasks) -> None:
    """No request waits for its start; until the first is full it accepts no task and is not listed."""
    await queue.create_many(7)
    lane = queue.worker.services.engine.get_workflow_handle(queue.lane_id(2))

    async def has_had_its_say() -> bool:
        history = await lane.fetch_history()
        return any(event.HasField("activity_task_completed_event_attributes") for event in history.events)

    await eventually(has_had_its_say)
    assert await span(queue) == (1, 1)
    async with queue.worker.services.database.connection() as connection:
        assert await connection.fetchval("SELECT array_agg(pos) FROM task_heads") == [1]
    assert {position(await queue.create()) for _ in range(3)} == {1}
    assert position(await queue.create()) == 2
    assert await span(queue) == (1, 2)
    assert (await queue.counts())["pending"] == 11


async def test_creates_of_several_processes_all_find_a_lane(queue: Tasks) -> None:
    """While both roll on, no task is lost or created twice, and no position is skipped."""
    async with beside(queue) as other:
        creates = [each.create() for each in (queue, other) for _ in range(60)]
        task_ids = await asyncio.gather(*creates)
        list_task_ids = good(await other.get("get_task_list", task_type=queue.type))["task_list"]
    assert sorted(task["task_id"] for task in list_task_ids) == sorted(task_ids)
    assert sorted(set(map(position, task_ids))) == list(range(1, 13))
    assert await span(queue) == (1, 12)
    assert (await queue.counts())["task_count"] == 120


async def test_holds_of_several_processes_get_different_tasks(queue: Tasks) -> None:
    """Each task is held once, however many callers hold at the same time."""
    task_ids = await queue.create_many(60)
    async with beside(queue) as other:
        held: list[str] = []

        async def work(each: Tasks) -> None:
            while tasks := await each.hold(limit=3, wait=2):
                held.extend(task["task_id"] for task in tasks)

        await asyncio.gather(*(work(each) for each in (queue, other) for _ in range(5)))
    assert sorted(held) == sorted(task_ids)


async def test_lanes_that_are_done_are_left_behind(queue: Tasks) -> None:
    """The first position moves on, the last one stays for new tasks, and ended tasks can still be read."""
    task_ids = await queue.create_many(25)
    assert await finish_all(queue) == 25
    await eventually(lambda: _begins_at(queue, 3))
    assert await span(queue) == (3, 3)
    assert {(await queue.task(task_id))["status"] for task_id in task_ids} == {SUCCESS}
    assert await queue.counts() == {
        "task_count": 25,
        "pending": 0,
        "running": 0,
        "success": 25,
        "failed": 0,
        "cancelled": 0,
    }
    assert position(await queue.create()) == 3


async def _begins_at(queue: Tasks, pos: int) -> bool:
    return (await span(queue))[0] == pos


async def test_a_type_whose_lanes_are_all_done_goes_on(queue: Tasks) -> None:
    """The next lane begins with the next task, and not before; meanwhile nothing is missing."""
    await queue.create_many(2 * LANE_TASKS)
    assert await finish_all(queue) == 2 * LANE_TASKS
    await eventually(lambda: _begins_at(queue, 3))
    assert (await queue.counts())["success"] == 2 * LANE_TASKS
    assert await queue.hold() == []
    task_id = await queue.create()
    assert position(task_id) == 3
    assert [task["task_id"] for task in await queue.hold()] == [task_id]
    assert (await queue.counts())["task_count"] == 2 * LANE_TASKS + 1


async def test_a_delayed_retry_holds_up_no_newer_lane(queue: Tasks) -> None:
    """One task of the first lane waits for long; the others are given out and left behind, and it stays found."""
    await queue.register(max_retry_interval=-300)
    delayed, *_ = await queue.create_many(30)
    first, *others = await queue.hold()
    assert first["task_id"] == delayed
    await queue.set(first, PENDING, crt_retry_num=1)
    await queue.finish(others)
    more = await queue.create_many(5)
    assert sorted(task["task_id"] for task in await queue.hold()) == sorted(more)
    assert (await queue.task(delayed))["status"] == PENDING
    # Lanes 2 and 3 are over although the first is not.
    for pos in (2, 3):
        await eventually(partial(is_over, queue, pos))
    assert await span(queue) == (1, 4)
    assert await queue.counts() == {
        "task_count": 35,
        "pending": 1,
        "running": 5,
        "success": 29,
        "failed": 0,
        "cancelled": 0,
    }


async def is_over(queue: Tasks, pos: int) -> bool:
    """Whether a lane's workflow has ended."""
    lane = queue.worker.services.engine.get_workflow_handle(queue.lane_id(pos))
    return (await lane.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_a_task_of_high_priority_is_found_first_in_any_lane(queue: Tasks) -> None:
    """Also by a process that did not create it, once the lane has published its head, which it does in a second."""
    await queue.create_many(25)
    urgent = await queue.create(task_priority=1_000)
    order_time = (await queue.task(urgent))["order_time_ms"]
    assert position(urgent) == 3

    async def is_published() -> bool:
        async with queue.worker.services.database.connection() as connection:
            head = "SELECT true FROM task_heads WHERE pos = 3 AND next_order_time = $1"
            return bool(await connection.fetchval(head, order_time))

    await eventually(is_published)
    async with beside(queue) as other:
        assert [task["task_id"] for task in await other.hold(limit=1)] == [urgent]


async def test_who_waits_hears_of_tasks_that_another_process_created(
    queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the lane saves its head, without polling."""
    monkeypatch.setattr(holds, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(lane_caches, "FRESH_SECONDS", 600.0)
    async with beside(queue) as other:
        assert await other.hold() == []
        waiting = asyncio.create_task(other.hold(wait=60))
        task_id = await queue.create()
        assert [task["task_id"] for task in await waiting] == [task_id]


async def test_who_waits_gets_a_task_before_its_lane_writes_anything_down(
    queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that created it announces it to the others, each time that an idle lane has a due task."""
    monkeypatch.setattr(holds, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(lane_caches, "FRESH_SECONDS", 600.0)
    async with beside(queue) as other:
        await queue.create()
        await queue.finish(await queue.hold())
        monkeypatch.setattr(lane, "CHECKPOINT_PAUSE_MS", 3_600_000)
        for _ in range(3):
            waiting = asyncio.create_task(other.hold(wait=30))
            task_id = await queue.create()
            # The hold looks for itself again only when its time is over.
            [held] = await asyncio.wait_for(waiting, 25)
            assert held["task_id"] == task_id
            await other.finish([held])


async def test_who_hangs_up_gets_nothing(queue: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was taken for a caller who has gone meanwhile waits for another one, without having failed."""
    await queue.register(max_processing_time=600, max_retry_num=0)
    seen: list[Call] = []
    is_disconnected, apply_batch = holds._is_disconnected, handle.apply_batch

    def note(call: Call) -> bool:
        seen.append(call)
        return is_disconnected(call)

    async def answer_late(*arguments: Any) -> Any:
        reply = await apply_batch(*arguments)
        if any(reply.holds) and not waiting.done():
            waiting.cancel()
            await eventually(lambda: is_disconnected(seen[0]))
        return reply

    monkeypatch.setattr(holds, "_is_disconnected", note)
    monkeypatch.setattr(handle, "apply_batch", answer_late)
    waiting = asyncio.create_task(queue.hold(wait=60))
    await eventually(lambda: seen)
    task_id = await queue.create()
    with suppress(asyncio.CancelledError):
        await waiting
    [held] = await queue.hold(wait=30)
    assert (held["task_id"], held["crt_retry_num"], held["lease"]) == (task_id, 0, 2)


async def test_the_same_task_id_is_the_same_task(queue: Tasks) -> None:
    """From any process, after lanes have rolled on, and after its end; with another content it is an error."""
    async with beside(queue) as other:
        twice = await asyncio.gather(
            *(each.create(task_id="order-17", task_content="a") for each in (queue, other) * 5)
        )
        [task_id] = set(twice)
        await queue.create_many(25)
        await finish_all(queue)
        await eventually(lambda: _begins_at(queue, 3))
        assert await other.create(task_id="order-17", task_content="a") == task_id
        assert await other.create(task_id=task_id, task_content="a") == task_id
        for changed in ({"task_content": "b"}, {"task_content": "a", "task_priority": 1}):
            answer = await other.post("create_task", task_data={"task_type": "video", "task_id": "order-17", **changed})
            assert (answer["code"], "another user, priority, content, stage or start" in answer["msg"]) == (8037, True)
    assert (await queue.counts())["task_count"] == 26


async def test_a_task_id_is_kept_while_the_task_is_changed_by_its_worker(queue: Tasks) -> None:
    """What was asked for is compared with what was asked for, not with what a worker has made of it."""
    task_id = await queue.create(task_id="order-18", task_content="a")
    [held] = await queue.hold()
    await queue.set(held, PENDING, task_content="c", crt_retry_num=0)
    assert await queue.create(task_id="order-18", task_content="a") == task_id
    assert (await queue.task(task_id))["task_content"] == "c"


async def test_an_id_of_a_full_lane_is_a_name_like_any_other(queue: Tasks) -> None:
    """A chosen id may have the form of a task id; the task is created in an open lane, and stays the same."""
    await queue.create_many(15)
    chosen = f"{'a' * 32}_video_1"
    task_id = await queue.create(task_id=chosen)
    assert position(task_id) == 2
    assert await queue.create(task_id=chosen) == task_id
    assert (await queue.task(task_id))["status"] == PENDING


async def test_a_task_of_a_lane_that_rests_is_told_as_it_is(queue: Tasks) -> None:
    """However often it was read before: what others do, and what the lane does by itself, is seen by the next read."""
    await queue.register(max_processing_time=600, max_retry_interval=-60)
    task_id = await queue.create()

    async def read_often() -> int:
        seen = {(await queue.task(task_id))["status"] for _ in range(8)}
        [status] = seen
        return int(status)

    assert await read_often() == PENDING
    async with beside(queue) as other:
        assert await other.hold(wait=30)
        assert (await queue.task(task_id))["status"] == RUNNING
        good(await other.post("put_back_tasks", task_list=[{"task_id": task_id}]))
        assert await read_often() == PENDING
        await other.register(max_processing_time=1)
        assert await other.hold(wait=30)

        async def is_taken_back() -> bool:
            task = await queue.task(task_id)
            return (task["status"], task["crt_retry_num"]) == (PENDING, 1)

        await eventually(is_taken_back)
        assert await read_often() == PENDING
        good(await other.post("cancel_task", task_id=task_id))
        assert await read_often() == CANCELLED


@pytest.mark.long
async def test_counts_agree_at_every_moment(queue: Tasks) -> None:
    """Created is pending, running, success and failed together, while tasks end, are archived, and lanes close."""
    seen: dict[int, list[int]] = {0: [], 1: []}
    created = 0
    done = asyncio.Event()

    async def watch(number: int, each: Tasks) -> None:
        while not done.is_set():
            before = created
            counts = await each.counts()
            assert before <= counts["task_count"] <= created + 20
            seen[number].append(counts["success"] + counts["failed"])

    async with beside(queue) as other, asyncio.TaskGroup() as watching:
        for number, each in enumerate((queue, other)):
            watching.create_task(watch(number, each))
        for _ in range(8):
            created += len(await queue.create_many(20))
            await other.finish(await other.hold(wait=20))
        done.set()
    # What has ended never becomes less.
    assert all(ended == sorted(ended) and ended[-1] > ended[0] for ended in seen.values())


async def test_a_list_has_each_task_once(queue: Tasks) -> None:
    """Live and archived ones, by status or stage, newest first, up to the limit."""
    task_ids = await queue.create_many(15, task_stage="one")
    held = await queue.hold()
    await queue.finish(held[:8])
    await queue.finish(held[8:9], FAILED)
    await queue.set(held[9], PENDING, task_stage="two", crt_retry_num=0)

    async def list_task_ids(**query: object) -> list[str]:
        return [task["task_id"] for task in good(await queue.get("get_task_list", **query))["task_list"]]

    archived = 0
    while archived < 8:
        assert sorted(await list_task_ids()) == sorted(task_ids)
        assert len(await list_task_ids(task_type="video", status=SUCCESS)) == 8
        assert await list_task_ids(status=FAILED) == [held[8]["task_id"]]
        assert await list_task_ids(stage="two") == [held[9]["task_id"]]
        newest = good(await queue.get("get_task_list", limit=5))["task_list"]
        assert len(newest) == 5
        moments = [task["create_time"] for task in newest]
        assert moments == sorted(moments, reverse=True)
        async with queue.worker.services.database.connection() as connection:
            archived = await connection.fetchval("SELECT count(*) FROM tasks_archive")


async def test_settings_of_several_processes_are_all_kept(queue: Tasks) -> None:
    """Each changes another field at the same moment."""
    async with beside(queue) as other:
        await asyncio.gather(
            queue.register(schedule_limit=11),
            other.register(schedule_interval=12),
            queue.register(max_retry_num=13),
            other.register(max_retry_interval=14),
            queue.register(max_processing_time=15),
        )
    config = await queue.config()
    assert [
        config[name]
        for name in (
            "schedule_limit",
            "schedule_interval",
            "max_retry_num",
            "max_retry_interval",
            "max_processing_time",
        )
    ] == [11, 12, 13, 14, 15]
