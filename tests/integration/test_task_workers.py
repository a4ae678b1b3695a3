"""The worker loop and the example of the documents at a real queue: stages, retries, leases, cancels, and a stop."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haulage import RequestRefused
from haulage.tasks import Handler, HeldTask, NewTask, NextStage, Status, TaskRequestRefused, Tasks, TaskType, Worker
from infra.settings import Settings
from tests.support.pace import measure_pace
from tests.support.tasks import running_tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "run-task-workers.md"
TYPE = "video"


@asynccontextmanager
async def queue(settings: Settings, **config: Any) -> AsyncIterator[tuple[Tasks, dict[str, str]]]:
    """A client of a running API with a type, and how others reach it."""
    async with running_tasks(settings) as running, Tasks(running.api_client.address, running.key) as tasks:
        await tasks.register(TaskType(task_type=TYPE, schedule_interval=1, **config))
        yield tasks, {"TASKS_URL": running.api_client.address, "TASKS_KEY": running.key}


@asynccontextmanager
async def working(tasks: Tasks, handlers: Mapping[str, Handler]) -> AsyncIterator[None]:
    """A worker, stopped in the end."""
    worker = Worker(tasks, TYPE, handlers, stop_seconds=5.0)
    loop = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await loop


async def wait_for_end(tasks: Tasks, task_id: str) -> Status | None:
    """How a task ended, once it has."""
    status = (await tasks.get(task_id)).status
    return status if status.final else None


async def test_a_task_goes_through_its_stages_and_is_retried(settings: Settings) -> None:
    """A stage passes its content on; a failed attempt counts, and the next one may succeed."""
    seen: list[tuple[str, str, int]] = []

    async def cut(task: HeldTask) -> NextStage:
        seen.append((task.stage, task.task_content, task.crt_retry_num))
        return NextStage("publish", content="cut")

    async def publish(task: HeldTask) -> None:
        seen.append((task.stage, task.task_content, task.crt_retry_num))
        if not task.crt_retry_num:
            raise ConnectionError("nobody there")

    async with queue(settings) as (tasks, _), working(tasks, {"": cut, "publish": publish}):
        task_id = await tasks.create(NewTask(task_type=TYPE, task_content="raw"))
        assert await eventually(lambda: wait_for_end(tasks, task_id)) is Status.SUCCESS
        task = await tasks.get(task_id)

    assert seen == [("", "raw", 0), ("publish", "cut", 0), ("publish", "cut", 1)]
    assert (task.crt_retry_num, task.task_content) == (1, "cut")
    assert "ConnectionError: nobody there" in task.schedule_log
    assert [attempt.outcome for attempt in task.attempts] == ["next_stage", "failed"]
    assert all(task.create_time <= attempt.held_time <= attempt.end_time for attempt in task.attempts)
    assert task.attempts_left_out == 0


async def test_a_long_task_keeps_its_lease(settings: Settings) -> None:
    """It runs through more than two leases, and no other worker gets it."""
    begun: list[str] = []
    release = asyncio.Event()

    async def long(task: HeldTask) -> None:
        begun.append(task.task_id)
        await release.wait()

    lease_seconds = min(math.ceil(3 * measure_pace()), 14)  # the longest wait of a hold is 30 s
    async with queue(settings, max_processing_time=lease_seconds) as (tasks, _), working(tasks, {"": long}):
        task_id = await tasks.create(NewTask(task_type=TYPE))
        await eventually(lambda: begun)
        assert await tasks.hold(TYPE, wait_seconds=2 * lease_seconds + 1) == []
        release.set()
        assert await eventually(lambda: wait_for_end(tasks, task_id)) is Status.SUCCESS

    assert begun == [task_id]


async def test_a_cancelled_task_is_given_up(settings: Settings) -> None:
    """The worker learns of it at its next heartbeat, and the task stays cancelled."""
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def endless(task: HeldTask) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    async with queue(settings, max_processing_time=1) as (tasks, _), working(tasks, {"": endless}):
        task_id = await tasks.create(NewTask(task_type=TYPE))
        await begun.wait()
        await tasks.cancel(task_id)
        await asyncio.wait_for(given_up.wait(), 30)
        assert (await tasks.get(task_id)).status is Status.CANCELLED


async def test_the_client_reaches_every_route(settings: Settings) -> None:
    """What goes out is what the API takes, and what comes back is read whole."""
    async with queue(settings) as (tasks, _):
        await tasks.ping()
        outcomes = await tasks.create_many([NewTask(task_type=TYPE, task_id=f"order-{n}") for n in range(3)])
        again = await tasks.create_many([NewTask(task_type=TYPE, task_id="order-0")])
        assert [outcome.good for outcome in outcomes] == [True] * 3
        assert again[0].task_id == outcomes[0].task_id
        await tasks.pause(TYPE, who="ann", reason="a test")
        assert await tasks.hold(TYPE) == []
        await tasks.resume(TYPE, who="ann", reason="a test")
        held = await tasks.hold(TYPE, limit=3)
        assert [outcome.good for outcome in await tasks.heartbeat(held)] == [True] * 3
        followed = await tasks.get(held[0].task_id)
        assert (followed.lease, followed.lease_end >= held[0].lease_end) == (held[0].lease, True)
        assert {task.task_id for task in await tasks.find(task_type=TYPE, status=Status.RUNNING)} == {
            task.task_id for task in held
        }
        counts = await tasks.counts(TYPE)
        assert (counts.task_count, counts.running, [each.task_type for each in await tasks.types()]) == (3, 3, [TYPE])
        with pytest.raises(TaskRequestRefused, match="There is no task"):
            await tasks.get("0" * 32 + "_video_1")


async def test_a_worker_ends_where_no_answer_can_get_better(settings: Settings) -> None:
    """With the API's own sentence: an unregistered type, a wrong key, an address that is none."""
    handlers: dict[str, Handler] = {"": end}
    async with queue(settings) as (tasks, address):
        url, key = address["TASKS_URL"], address["TASKS_KEY"]
        with pytest.raises(TaskRequestRefused, match="There is no type 'audio' in this project"):
            await asyncio.wait_for(Worker(tasks, "audio", handlers).run(), 60)
        async with Tasks(url, f"{key[:-1]}{'0' if key[-1] != '0' else '1'}") as wrong:
            with pytest.raises(RequestRefused, match="This is neither the admin key nor a project's key"):
                await asyncio.wait_for(Worker(wrong, TYPE, handlers).run(), 60)
        async with Tasks(f"{url}/elsewhere", key) as elsewhere:
            with pytest.raises(RequestRefused, match="nothing at this address"):
                await asyncio.wait_for(Worker(elsewhere, TYPE, handlers).run(), 60)


async def end(task: HeldTask) -> None:
    """Nothing is left to do."""


async def test_the_example_of_the_documents_works(settings: Settings, tmp_path: Path) -> None:
    """As printed on the page, in a process of its own, ended by a signal."""
    [example] = re.findall(r'```python\n(""".*?)```', PAGE.read_text(), re.DOTALL)
    script = tmp_path / "worker.py"
    script.write_text(example)
    async with queue(settings) as (tasks, address):
        environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), **address}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), env=environment, stdout=asyncio.subprocess.PIPE
        )
        video = await tasks.create(NewTask(task_type=TYPE, task_content="cats.mp4"))
        text = await tasks.create(NewTask(task_type=TYPE, task_content="cats.txt"))
        assert await eventually(lambda: wait_for_end(tasks, video)) is Status.SUCCESS
        assert await eventually(lambda: wait_for_end(tasks, text)) is Status.FAILED
        assert "cats.txt is no video." in (await tasks.get(text)).schedule_log
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()

    assert (process.returncode, output) == (0, b"published cats-720p.mp4\n")
