"""A worker that dies, or is asked to stop, costs seconds and no work."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from temporalio.client import WorkflowHandle

from cli.house import House, worker_names
from infra import temporal
from tests.exports import expected, parsed
from tests.faults.client import client
from tests.faults.engine import find
from tests.stack import eventually
from workflows.downloads import DownloadWorkflow

RECOVERY_MAX_SECONDS = 4.0
RECOVERIES = 5
ROWS = 60_000


async def test_a_killed_worker_is_replaced_within_four_seconds(running: House) -> None:
    """The workflow that a dead worker held in its cache answers from another one in under 4 s, of a few times once."""
    took: list[float] = []
    # What the machine is busy with comes on top, and not every time; our own time-outs would be in each of them.
    while not took or (min(took) >= RECOVERY_MAX_SECONDS and len(took) < RECOVERIES):
        took.append(await _recovery(running))
    assert min(took) < RECOVERY_MAX_SECONDS, took


async def _recovery(running: House) -> float:
    """Kill the worker that holds an export's workflow; how many seconds later another one answers for it."""
    engine = await temporal.connect(running.stack.environment(running.settings))
    async with client(running) as caller:
        task_id = await caller.start(f"{running.source}/rows?rows={ROWS}&delay_ms=60&seed=1", page_size=100)
        await caller.until(task_id, lambda status: status["rows"] > 0)
        workflow = await find(engine, task_id)
        holder = await _holder(running, workflow)

        running.stack.kill(holder)
        began = time.monotonic()
        status = await workflow.query(DownloadWorkflow.status)
        seconds = time.monotonic() - began

        assert status.total == ROWS
        assert (await caller.ended(task_id))["state"] == "succeeded"
    await running.stack.ready(holder)
    return seconds


async def test_a_worker_that_is_asked_to_stop_hands_its_work_over(running: House) -> None:
    """SIGTERM in the middle of an export: the worker goes in order, the export ends right."""
    async with client(running) as caller:
        task_id = await caller.start(f"{running.source}/rows?rows={ROWS}&delay_ms=30&seed=2", page_size=100)
        await caller.until(task_id, lambda status: status["rows"] > ROWS // 4)
        for name in worker_names():
            os.kill(running.stack.pids()[name], signal.SIGTERM)
        status = await caller.ended(task_id)

        assert status["state"] == "succeeded", status
        assert parsed(await caller.file(task_id)) == expected(2, range(ROWS))
    log = running.settings.data_dir / "logs" / f"{worker_names()[0]}.log"
    # The other one may be back first, and end the export while this one still goes.
    await eventually(lambda: '"worker_stopped"' in log.read_text())


async def _holder(running: House, workflow: WorkflowHandle[Any, Any]) -> str:
    """The worker process that took the workflow's last task, and so holds it in its cache."""
    history = await workflow.fetch_history()
    identities = [
        event.workflow_task_started_event_attributes.identity
        for event in history.events
        if event.HasField("workflow_task_started_event_attributes")
    ]
    pid = int(identities[-1].partition("@")[0])
    return next(name for name in worker_names() if running.stack.pids()[name] == pid)
