"""Tasks through the public API: created, held, set, asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from infra.settings import Settings
from tests.queues import PENDING, RUNNING, SUCCESS, Tasks, tasking

pytestmark = pytest.mark.stack


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[Tasks]:
    """An API, a worker, and a type of tasks."""
    async with tasking(settings) as queue:
        await queue.register()
        yield queue


async def test_a_task_goes_its_way(queue: Tasks) -> None:
    """Created it is pending, held it is running, and set it has ended, for whoever asks."""
    task_id = await queue.create(user_id="u1", task_content="{}", task_priority=5)
    pending = await queue.task(task_id)
    [held] = await queue.hold()
    running = await queue.task(task_id)
    await queue.finish([held])
    ended = await queue.task(task_id)

    assert task_id.endswith("_video_1")
    assert [task["status"] for task in (pending, running, ended)] == [PENDING, RUNNING, SUCCESS]
    assert held["task_id"] == task_id
    assert (held["user_id"], held["task_content"], held["task_priority"]) == ("u1", "{}", 5)
    assert await queue.hold() == []
    assert await queue.counts() == {"task_count": 1, "pending": 0, "running": 0, "success": 1, "failed": 0}
