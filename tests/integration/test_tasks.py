"""Tasks through the public API: created, held, set, thrown back, cancelled, asked for."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.tasks.lane_caches import UNCHANGED_READS
from api.tasks.responses import HeldTaskResponse, TaskDetailsResponse, TaskResponse
from domain.tasks import names
from domain.tasks.messages import TaskLookup
from tests.support.pace import measure_pace
from tests.support.tasks import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, Json, Tasks, good
from tests.support.waiting import eventually
from workflows.tasks import handle

pytestmark = pytest.mark.stack

LONG = "x" * 5_000


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register()
    return shared_tasks


async def test_a_task_goes_its_way(queue: Tasks) -> None:
    """It is pending when created, running when held, and ended when set."""
    task_id = await queue.create(user_id="u1", task_content="{}", task_priority=5, task_stage="first")
    pending = await queue.task(task_id)
    [held] = await queue.hold()
    running = await queue.task(task_id)
    await queue.finish([held])
    ended = await queue.task(task_id)

    assert task_id.endswith("_video_1")
    assert [task["status"] for task in (pending, running, ended)] == [PENDING, RUNNING, SUCCESS]
    assert held["task_id"] == task_id
    assert (held["user_id"], held["task_content"], held["stage"]) == ("u1", "{}", "first")
    assert await queue.hold() == []
    assert await queue.counts() == {
        "task_count": 1,
        "pending": 0,
        "running": 0,
        "success": 1,
        "failed": 0,
        "cancelled": 0,
    }


async def test_tasks_are_told_as_the_document_says(queue: Tasks) -> None:
    """Every field is there, and no other."""
    task_id = await queue.create()
    [held] = await queue.hold()
    assert HeldTaskResponse.model_validate(held).model_dump().keys() == held.keys()
    assert TaskDetailsResponse.model_validate(await queue.task(task_id)).model_dump() == await queue.task(task_id)
    [listed] = good(await queue.get("get_task_list"))["task_list"]
    assert TaskResponse.model_validate(listed).model_dump() == listed


async def test_both_names_of_a_field_are_taken(queue: Tasks) -> None:
    """The original's documents and its code differ in them."""
    task_id = await queue.create(context="content", priority=7, stage="s1")
    [held] = await queue.hold()
    assert (held["task_content"], held["task_priority"], held["stage"]) == ("content", 7, "s1")
    said = {"task_id": task_id, "task_status": PENDING, "context": "more", "stage": "s2"}
    good(await queue.post("set_task", task_data=said))
    task = await queue.task(task_id)
    assert (task["task_content"], task["stage"], task["status"]) == ("more", "s2", PENDING)


async def test_a_lease_that_is_over_refuses_who_had_it(queue: Tasks) -> None:
    """The task is given to another, and only that one's word counts."""
    await queue.register(max_processing_time=1, max_retry_interval=0)
    await queue.create()
    [stale] = await queue.hold()
    await queue.register(max_processing_time=600)
    [fresh] = await queue.hold(wait=20)
    refused = await queue.try_set(stale, SUCCESS)

    assert fresh["task_id"] == stale["task_id"]
    assert (fresh["crt_retry_num"], fresh["lease"] > stale["lease"]) == (1, True)
    assert refused["code"] == 8041
    assert refused["msg"].startswith("FAIL_REASON::")
    await queue.set(fresh, SUCCESS)


async def test_the_archive_knows_who_ended_a_task(queue: Tasks) -> None:
    """A former holder is refused there, too; the one that ended it gets the same success again."""
    await queue.register(max_processing_time=1, max_retry_interval=0)
    task_id = await queue.create()
    [stale] = await queue.hold()
    await queue.register(max_processing_time=600)
    [fresh] = await queue.hold(wait=20)
    await queue.set(fresh, SUCCESS)

    async def in_the_archive() -> bool:
        return bool((await queue.task(task_id))["archived"])

    await eventually(in_the_archive)
    assert (await queue.try_set(stale, SUCCESS))["code"] == 8041
    await queue.set(fresh, SUCCESS)


async def test_a_heartbeat_keeps_a_task(queue: Tasks) -> None:
    """While its holder sends heartbeats, no other worker gets it."""
    lease_seconds = math.ceil(2 * measure_pace())
    await queue.register(max_processing_time=lease_seconds)
    await queue.create()
    [held] = await queue.hold()
    until = time.time() + 2 * lease_seconds
    while time.time() < until:
        beat = good(
            await queue.post("heartbeat_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"]}])
        )
        assert [result["code"] for result in beat["results"]] == [0]
        assert await queue.hold(wait=0.2) == []
    await queue.set(held, SUCCESS)
    late = await queue.post("heartbeat_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"]}])
    assert late["results"][0]["code"] == 8041


async def test_a_failure_waits_and_the_last_one_ends_the_task(queue: Tasks) -> None:
    """Two retries are three attempts; the pauses are the original's."""
    await queue.register(max_retry_num=2, max_retry_interval=-1)
    task_id = await queue.create(task_priority=100)
    waits = []
    due_ms = 0
    for attempt in range(3):
        [held] = await queue.hold() or await queue.hold(wait=20)
        assert (held["crt_retry_num"], time.time() * 1_000 >= due_ms) == (attempt, True)
        await queue.set(held, PENDING, crt_retry_num=attempt + 1, schedule_log=f"attempt {attempt}")
        task = await queue.task(task_id)
        due_ms = task["order_time_ms"]
        waits.append(due_ms / 1_000 - datetime.fromisoformat(task["modify_time"]).timestamp())
    assert await queue.hold() == []
    assert (task["status"], task["schedule_log"]) == (FAILED, "attempt 2")
    # Without its priority: else it would be due at once.
    assert waits[:2] == pytest.approx([1, 1], abs=0.01)


async def test_a_stage_goes_to_the_tail(queue: Tasks) -> None:
    """Tasks that were created meanwhile go first."""
    first, second = await queue.create(), await queue.create()
    [held] = await queue.hold(limit=1)
    await queue.set(held, PENDING, task_stage="next", crt_retry_num=0)
    assert [task["task_id"] for task in await queue.hold()] == [second, first]


async def test_attempts_that_did_not_end_a_task_are_told(queue: Tasks) -> None:
    """In its lane, also when that is idle, and in the archive; a hold does not return them."""
    await queue.register(max_processing_time=600, max_retry_interval=0)
    task_id = await queue.create()
    [held] = await queue.hold()
    await queue.set(held, PENDING, crt_retry_num=1)
    await queue.register(max_processing_time=1)
    assert await queue.hold(wait=20)
    await queue.register(max_processing_time=600)
    [third] = await queue.hold(wait=20)
    assert third.keys() == held.keys()
    await queue.set(third, PENDING, task_stage="mail")
    [fourth] = await queue.hold()
    good(await queue.post("put_back_tasks", task_list=[{"task_id": task_id, "lease": fourth["lease"]}]))
    told = [await queue.task(task_id) for _ in range(UNCHANGED_READS + 5)]
    await queue.finish(await queue.hold())

    async def is_archived() -> bool:
        return bool((await queue.task(task_id))["archived"])

    await eventually(is_archived)
    tried = told[0]["attempts"]
    assert [each["outcome"] for each in tried] == ["failed", "timed_out", "next_stage", "put_back"]
    moments = [each[name] for each in tried for name in ("held_time", "end_time")]
    assert moments == sorted(moments)
    assert all(each["attempts"] == tried for each in told)
    ended = await queue.task(task_id)
    assert (ended["attempts"], ended["attempts_left_out"], ended["status"]) == (tried, 0, SUCCESS)


async def test_a_cancelled_task_is_nobody_s(queue: Tasks) -> None:
    """Pending it is not given out; running its holder is refused. Twice is once."""
    pending, running = await queue.create(), await queue.create(task_priority=1_000)
    [held] = await queue.hold(limit=1)
    assert held["task_id"] == running
    for task_id in (pending, running, running):
        good(await queue.post("cancel_task", task_id=task_id))
    assert await queue.hold() == []
    assert (await queue.try_set(held, SUCCESS))["code"] == 8041
    assert [(await queue.task(task_id))["status"] for task_id in (pending, running)] == [CANCELLED, CANCELLED]


async def test_a_cancelled_task_is_told_from_a_failed_one(queue: Tasks) -> None:
    """In its lane and in the archive, in lists, counts and figures; and a failed one cannot be cancelled any more."""
    cancelled, failed = await queue.create(), await queue.create(task_priority=9)
    await queue.finish(await queue.hold(limit=1), FAILED)
    good(await queue.post("cancel_task", task_id=cancelled))

    async def look() -> list[Json]:
        counts = await queue.counts()
        assert (counts["task_count"], counts["failed"], counts["cancelled"]) == (2, 1, 1)
        for status, task_id in ((FAILED, failed), (CANCELLED, cancelled)):
            for route in ("get_task_list", "browse_tasks"):
                found = good(await queue.get(route, task_type=queue.type, status=status))["task_list"]
                assert [each["task_id"] for each in found] == [task_id], route
        return [await queue.task(task_id) for task_id in (failed, cancelled)]

    assert [task["status"] for task in await look()] == [FAILED, CANCELLED]

    async def are_archived() -> bool:
        return all(task["archived"] for task in await look())

    await eventually(are_archived)
    assert [task["status"] for task in await look()] == [FAILED, CANCELLED]
    assert (await queue.post("cancel_task", task_id=failed))["code"] == 8041
    good(await queue.post("cancel_task", task_id=cancelled))

    async def is_figured() -> bool:
        [row] = good(await queue.get("get_task_figures", prefix=queue.type))["type_list"]
        [lane] = good(await queue.get("get_task_lanes", task_type=queue.type))["lane_list"]
        return all((each["failed"], each["cancelled"]) == (1, 1) for each in (row, lane))

    await eventually(is_figured)


async def test_a_task_starts_at_its_time(queue: Tasks) -> None:
    """Not before, though it has the highest priority; a worker that waits gets it then."""
    start = datetime.now(UTC) + timedelta(seconds=1.5)
    task_id = await queue.create(task_id="later", task_priority=1_000, start_time=start.isoformat())
    assert await queue.create(task_id="later", task_priority=1_000, start_time=start.isoformat()) == task_id
    assert (await queue.task(task_id))["order_time_ms"] == round(start.timestamp() * 1_000)
    said = {"task_type": queue.type, "task_id": task_id, "task_priority": 1_000}
    assert (await queue.post("create_task", task_data=said))["code"] == 8037
    assert good(await queue.post("create_task", task_data=said | {"start_time": start.isoformat()}))["code"] == 0
    [held] = await queue.hold() or await queue.hold(wait=20)
    assert (held["task_id"], datetime.now(UTC) >= start) == (task_id, True)
    said = {"task_type": queue.type, "task_id": "later", "task_priority": 1_000}
    assert (await queue.post("create_task", task_data=said))["code"] == 8037
    for wrong in ("2026-01-01T00:00:00", "tomorrow", 5, "2999-01-01T00:00:00Z"):
        answer = await queue.post("create_task", task_data={"task_type": queue.type, "start_time": wrong})
        assert (answer["code"], answer["errors"][0]["path"]) == (8020, "task_data.start_time"), answer


async def test_a_name_with_another_stage_is_another_task(queue: Tasks) -> None:
    """It was answered with 0 and the id of the first task, whose stage is none that was asked for."""
    said = {"task_type": queue.type, "task_id": "staged", "task_stage": "cut"}
    task_id = good(await queue.post("create_task", task_data=said))["task_id"]

    assert good(await queue.post("create_task", task_data=said))["task_id"] == task_id
    for stage in ("publish", ""):
        answer = await queue.post("create_task", task_data=said | {"task_stage": stage})
        assert (answer["code"], "stage" in answer["msg"]) == (8037, True)


async def test_a_caller_may_wait_for_a_task(queue: Tasks) -> None:
    """It is answered as soon as one comes, and only one of two gets it."""
    waiting = [asyncio.create_task(queue.hold(wait=30)) for _ in range(2)]
    begun = time.monotonic()
    task_id = await queue.create()
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [[task["task_id"] for task in each.result()] for each in done] == [[task_id]]
    assert time.monotonic() - begun < 25
    second = await queue.create()
    assert [task["task_id"] for task in await others.pop()] == [second]


async def test_who_waits_in_vain_gets_an_empty_list(queue: Tasks) -> None:
    """When its time is over, and not before."""
    begun = time.monotonic()
    assert await queue.hold(wait=0.5) == []
    assert time.monotonic() - begun >= 0.5


async def test_long_texts_come_back_whole(queue: Tasks) -> None:
    """Content and log, live and archived, however they are set."""
    task_id = await queue.create(task_content=LONG)
    [held] = await queue.hold()
    assert held["task_content"] == LONG
    await queue.set(held, PENDING, task_content=LONG + "2", schedule_log="很长" * 500)
    task = await queue.task(task_id)
    assert (task["task_content"], task["schedule_log"]) == (LONG + "2", "很长" * 500)
    await queue.finish(await queue.hold())

    async def require_archived() -> Any:
        task = await queue.task(task_id)
        assert (task["task_content"], task["schedule_log"]) == (LONG + "2", "很长" * 500)
        listed = good(await queue.get("get_task_list", task_type=queue.type))["task_list"]
        assert [task | each for each in listed] == [task]
        return await is_archived(queue, task_id)

    assert await eventually(require_archived)


async def is_archived(queue: Tasks, task_id: str) -> bool:
    """Whether the database has it."""
    async with queue.worker.services.database.connection() as connection:
        return bool(await connection.fetchval("SELECT true FROM tasks_archive WHERE task_id = $1", task_id))


async def test_a_lane_that_does_not_answer_in_time_is_woken(queue: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps it in memory after an update, and answers the next query without replaying its history."""
    await queue.create_many(3)
    before = await queue.counts()
    engine, lane = queue.worker.services.engine, (names.build_type_id(queue.project_id, queue.type), 1)
    number = (await handle.look_up_tasks(engine, lane, TaskLookup(keys=[]))).head.number
    with monkeypatch.context() as hurried:
        hurried.setattr(handle, "QUERY_TIMEOUT", timedelta(microseconds=1))
        with pytest.raises(handle.LaneUnresponsive):
            await handle.look_up_tasks(engine, lane, TaskLookup(keys=[]))
    assert (await handle.look_up_tasks(engine, lane, TaskLookup(keys=[]))).head.number == number + 1
    assert await queue.counts() == before
