"""Heartbeats of an activity that is cancelled."""

from __future__ import annotations

import asyncio

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
