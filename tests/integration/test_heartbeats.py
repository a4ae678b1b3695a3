"""An activity is alive as long as its process is, however long that does not turn its loop."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from infra import temporal
from infra.heartbeats import send_heartbeats_during_block

QUEUE = "busy"
TIMEOUT = timedelta(seconds=4)
BUSY_SECONDS = 7.0


@activity.defn(name="be_busy")
async def be_busy() -> int:
    """Keep the loop from turning for longer than the engine waits for a heartbeat; say which attempt it was."""
    async with send_heartbeats_during_block():
        await asyncio.sleep(0.1)
        time.sleep(BUSY_SECONDS)  # noqa: ASYNC251 (this is what is tested)
    return activity.info().attempt


@workflow.defn(name="Busy")
class Busy:
    """One busy step."""

    @workflow.run
    async def run(self) -> int:
        """Do it."""
        return await workflow.execute_activity(
            be_busy,
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=TIMEOUT,
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.1)),
        )


@pytest.mark.usefixtures("namespace")
async def test_a_process_that_is_busy_is_not_taken_for_dead() -> None:
    """The first attempt ends the work: nothing is done twice."""
    engine = await temporal.connect()
    async with Worker(
        engine, task_queue=QUEUE, workflows=[Busy], activities=[be_busy], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        attempt = await engine.execute_workflow(Busy.run, id="busy", task_queue=QUEUE)
    assert attempt == 1
