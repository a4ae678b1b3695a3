"""flowSvr's own SDK does thousands of tasks, is killed amid them, and nothing is lost, doubled or out of order.

`make compat` does it with 2,000 tasks. `tests/integration/test_task_original.py` sends its client's bytes without it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.compat import record, sdk
from tests.compat.sdk import Binaries, Redis
from tests.support.original_worker import OriginalClient
from tests.support.pace import measure_pace
from tests.support.tasks import Tasks, running_tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

TASKS = int(os.environ.get("COMPAT_TASKS", "60"))
EXAMPLES = 20
HOLD = max(15, TASKS // 10)
SLEEP_MS = 3_000
RETRIES = 6
KILLS = 2
URGENT = 3_600
"""Of every fourth task: more than one hold gets."""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Binaries:
    """Both workers."""
    return sdk.build(tmp_path_factory.mktemp("sdk"))


@pytest.fixture
async def redis(unused_tcp_port: int, binaries: Binaries) -> AsyncIterator[Redis]:
    """Where the SDK takes its locks."""
    async with sdk.running_redis(unused_tcp_port) as redis:
        yield redis


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[Tasks]:
    """An API and a worker for lanes."""
    async with running_tasks(settings) as queue:
        yield queue


def base_of(queue: Tasks) -> str:
    """The address of the API with the key in it: all that is changed for the SDK."""
    return queue.api_client.address.replace("http://", f"http://:{queue.key}@")


async def test_the_sdk_s_own_worker_runs_unchanged(
    queue: Tasks, binaries: Binaries, redis: Redis, tmp_path: Path
) -> None:
    """It takes each task once, through both of its stages."""
    lark = Tasks(queue.api_client, queue.key, queue.worker, queue.project_id, "lark")
    await lark.register(schedule_interval=1, max_processing_time=round(30 * measure_pace()))
    client = OriginalClient(queue.api_client, queue.key)
    context = json.dumps({"ReqBody": {"Msg": "hello"}, "UserId": "u"})
    created = [
        (await client.create(task_type="lark", context=context, task_stage="sendmsg"))["task_id"]
        for _ in range(EXAMPLES)
    ]
    async with sdk.running_example(binaries, tmp_path / "src", base_of(queue), redis) as worker:

        async def is_done() -> bool:
            await worker.look_after()
            return bool((await lark.counts())["success"] == EXAMPLES)

        await eventually(is_done, 120)
    output = worker.output.read_text()
    assert {task_id: output.count(task_id) for task_id in created} == dict.fromkeys(created, 1)
    tasks = [await lark.task(task_id) for task_id in created]
    assert {(task["stage"], json.loads(task["task_content"])["UserId"]) for task in tasks} == {("record", "u")}


async def test_a_worker_on_the_sdk_is_killed_and_nothing_is_lost(
    queue: Tasks, binaries: Binaries, redis: Redis, tmp_path: Path
) -> None:
    """Three stages, retries, priorities: the worker's own record and the server's say the same of each task."""
    steps = Tasks(queue.api_client, queue.key, queue.worker, queue.project_id, "steps")
    lease = round(10 * measure_pace())
    await steps.register(
        schedule_interval=1,
        schedule_limit=HOLD,
        max_processing_time=lease,
        max_retry_num=RETRIES,
        max_retry_interval=-round(record.PAUSE_SECONDS),
    )
    doomed = await create_tasks(steps)
    written = tmp_path / "record"
    async with sdk.running_steps(binaries, tmp_path / "src", base_of(queue), redis, written) as worker:
        for _ in range(KILLS):
            await eventually(lambda: is_amid(steps, worker, written), 300)
            await worker.kill()
            held = (await steps.counts())["running"]
            await worker.start()

        async def is_done() -> bool:
            await worker.look_after()
            counts = await steps.counts()
            return bool(counts["pending"] + counts["running"] == 0)

        await eventually(is_done, 300 + lease * RETRIES)

    counts = await steps.counts()
    print(f"{TASKS} tasks, {held} held when the worker was killed for the last time: {counts}")  # noqa: T201
    assert (counts["task_count"], counts["success"], counts["failed"]) == (TASKS, TASKS - len(doomed), len(doomed))
    tasks = {task_id: await steps.task(task_id) for task_id in await all_ids(steps)}
    assert len(tasks) == TASKS
    assert list(record.find_differences(record.read(written), tasks, doomed, HOLD)) == []
    assert any(each["outcome"] == "timed_out" for task in tasks.values() for each in task["attempts"])


async def create_tasks(steps: Tasks) -> frozenset[str]:
    """Create all tasks before the first hold; return those that fail with every retry."""
    new = [
        {
            "task_type": steps.type,
            "task_stage": record.STAGES[0],
            "priority": URGENT if number % 4 == 0 else 0,
            "context": json.dumps(wish_of(number)),
        }
        for number in range(TASKS)
    ]
    created: list[str] = []
    for begin in range(0, TASKS, 1_000):
        answer = await steps.post("create_tasks", task_list=new[begin : begin + 1_000])
        created += [each["task_id"] for each in answer["results"]]
    assert len(set(created)) == TASKS
    return frozenset(task_id for number, task_id in enumerate(created) if int(wish_of(number)["fails"]) > RETRIES)


def wish_of(number: int) -> dict[str, str | int]:
    """What a task asks for: how many of its attempts fail, and in which stage."""
    if number % 40 == 7:
        return {"fail_in": "send", "fails": 1_000_000}
    sleep_ms = SLEEP_MS if number % 10 == 3 else 0
    return {"fail_in": ("cut", "mix")[number % 2], "fails": max(0, number % 5 - 2), "sleep_ms": sleep_ms}


async def is_amid(steps: Tasks, worker: sdk.RunningWorker, written: Path) -> bool:
    """Whether some tasks are done, and a handler has begun one that it is at for a while yet."""
    await worker.look_after()
    if (await steps.counts())["success"] < TASKS // 10:
        return False
    begun = [each for each in record.read(written) if each.what == "begun"]
    return any(time.time() < each.at + each.sleep_ms / 2_000 for each in begun)


async def all_ids(steps: Tasks) -> list[str]:
    """The ids of all tasks."""
    ids: list[str] = []
    cursor = ""
    while True:
        page = await steps.get("browse_tasks", task_type=steps.type, limit=200, cursor=cursor)
        ids += [task["task_id"] for task in page["task_list"]]
        cursor = page["next_cursor"]
        if not cursor:
            return sorted(set(ids))
