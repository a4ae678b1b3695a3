"""Defects of flowSvr that its callers meet; those of several lanes and processes are in test_task_lanes."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from tests.support.tasks import FAILED, PENDING, RUNNING, SUCCESS, Tasks, good
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register()
    return shared_tasks


async def test_priority_counts(queue: Tasks) -> None:
    """It was never copied, so that all tasks had the order time 0."""
    late, early = await queue.create(), await queue.create(task_priority=60)
    task = await queue.task(early)
    assert task["order_time_ms"] / 1_000 == pytest.approx(
        datetime.fromisoformat(task["create_time"]).timestamp() - 60, abs=0.01
    )
    assert [held["task_id"] for held in await queue.hold()] == [early, late]


async def test_a_pause_is_kept_on_an_idle_queue(queue: Tasks) -> None:
    """The hold looked at the order, and not at whether a task was due."""
    await queue.register(max_retry_interval=-300)
    await queue.create(task_priority=600)
    [held] = await queue.hold()
    await queue.set(held, PENDING, crt_retry_num=1)
    assert await queue.hold(wait=1.5) == []


async def test_tasks_that_time_out_fail_in_the_end(queue: Tasks) -> None:
    """Their retries were always counted as the first, and their pause was none."""
    await queue.register(max_retry_num=1, max_retry_interval=1, max_processing_time=1)
    task_id = await queue.create()
    retries = []
    for _ in range(2):
        [held] = await queue.hold(wait=20)
        retries.append(held["crt_retry_num"])

    async def is_failed() -> bool:
        return bool((await queue.task(task_id))["status"] == FAILED)

    await eventually(is_failed)
    assert retries == [0, 1]
    assert await queue.hold() == []


async def test_a_lease_has_a_length_though_nobody_gave_one(queue: Tasks) -> None:
    """The default was inverted: what was set was replaced, what was not stayed 0."""
    await queue.create()
    [held] = await queue.hold()
    assert held["lease_end"] - time.time() == pytest.approx(30, abs=5)


async def test_a_set_that_changes_nothing_is_no_success(queue: Tasks) -> None:
    """It answered 0 for unknown tasks, for tasks without a holder, and for ended ones."""
    task_id = await queue.create()
    pending = await queue.post("set_task", task_data={"task_id": task_id, "status": SUCCESS})
    [held] = await queue.hold()
    await queue.set(held, SUCCESS)
    ended = await queue.try_set(held, FAILED)
    assert [answer["code"] for answer in (pending, ended)] == [8041, 8041]
    assert (await queue.task(task_id))["status"] == SUCCESS


async def test_what_is_empty_can_be_set(queue: Tasks) -> None:
    """Zeros and empty texts were skipped, so that nothing could be reset."""
    await queue.register(max_retry_interval=0)
    task_id = await queue.create(task_content="content", task_stage="one")
    [held] = await queue.hold()
    await queue.set(held, PENDING, crt_retry_num=1, schedule_log="log")
    [held] = await queue.hold(wait=5)
    await queue.set(held, PENDING, crt_retry_num=0, task_content="", task_stage="", schedule_log="")
    task = await queue.task(task_id)
    assert (task["crt_retry_num"], task["task_content"], task["stage"], task["schedule_log"]) == (0, "", "", "")


async def test_a_task_is_told_as_it_is_now(queue: Tasks) -> None:
    """A cache kept it for a day, whatever was held or taken back meanwhile."""
    await queue.register(max_processing_time=600, max_retry_interval=-300)
    task_id = await queue.create()
    seen = [(await queue.task(task_id))["status"]]
    await queue.hold()
    seen.append((await queue.task(task_id))["status"])
    good(await queue.post("put_back_tasks", task_list=[{"task_id": task_id}]))
    seen.append((await queue.task(task_id))["status"])
    assert seen == [PENDING, RUNNING, PENDING]
    await queue.register(max_processing_time=1)
    assert await queue.hold()

    async def is_taken_back() -> bool:
        task = await queue.task(task_id)
        return (task["status"], task["crt_retry_num"]) == (PENDING, 1)

    await eventually(is_taken_back)


async def test_a_misspelt_request_is_an_error(queue: Tasks) -> None:
    """The original's own load scripts sent names that it did not know, and measured how fast it said so."""
    created = await queue.post("create_task", taskData={"task_type": queue.type})
    read = await queue.get("get_task", task="x")
    assert [answer["code"] for answer in (created, read)] == [8020, 8020]
    assert (await queue.counts())["task_count"] == 0


async def test_a_type_that_nobody_registered_stays_unknown(queue: Tasks) -> None:
    """A create made half of it, in passing."""
    for _ in range(2):
        answer = await queue.post("create_task", task_data={"task_type": "ghost"})
        assert answer["code"] == 8045
    types = good(await queue.get("get_task_schedule_cfg_list"))["task_schedule_cfg_list"]
    assert [each["task_type"] for each in types] == [queue.type]
