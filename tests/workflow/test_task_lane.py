"""The plan of a lane on a real engine: answers, time-outs, archive, continue-as-new, the end."""

from __future__ import annotations

import pytest

from domain.tasks.messages import Status
from infra.settings import Settings
from tests.lanes import laning, new_tasks
from tests.stack import eventually

pytestmark = pytest.mark.stack


async def test_a_task_is_created_held_set_and_archived(settings: Settings) -> None:
    """It is in the lane until the archive has it, and nowhere twice."""
    async with laning(settings) as lanes:
        lane = await lanes.start()
        [wanted] = new_tasks(1, '{"url": "x"}', priority=5)
        await lane.create([wanted])
        [held] = await lane.hold()
        assert await lane.finish([held]) == "0"

        async def archived() -> bool:
            return (await lane.look(wanted.key)).tasks == [None]

        await eventually(archived)
        row = (await lanes.archived(wanted.key))[wanted.key]

    assert (held.key, held.content, held.status) == (wanted.key, wanted.content, Status.RUNNING)
    assert held.order_time == held.create_time - 5_000
    assert (row["status"], row["content"], row["priority"]) == (Status.SUCCESS, wanted.content, 5)
