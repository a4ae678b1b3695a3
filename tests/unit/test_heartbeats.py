"""Heartbeats of an activity that is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from temporalio.testing import ActivityEnvironment

from infra.heartbeats import send_heartbeats_during_block


async def test_a_cancellation_as_heartbeats_end_is_not_lost() -> None:
    """It comes while the block waits for the task that sends them."""
    went_on: list[bool] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with send_heartbeats_during_block():
            asyncio.get_running_loop().call_soon(task.cancel)
        went_on.append(True)

    running = asyncio.create_task(ActivityEnvironment().run(work))
    await asyncio.wait([running])

    assert running.cancelled()
    assert went_on == []


async def test_progress_that_cannot_be_read_fails_the_activity() -> None:
    """Else no heartbeat comes any more, and nothing says why."""

    def fail() -> Sequence[object]:
        raise ValueError("no progress")

    async def work() -> None:
        async with send_heartbeats_during_block(fail):
            await asyncio.sleep(0.01)

    with pytest.raises(ValueError, match="no progress"):
        await ActivityEnvironment().run(work)
