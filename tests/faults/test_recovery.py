"""A worker that dies, or is asked to stop, costs seconds and no work."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from temporalio.client import WorkflowHandle

from cli.house import worker_names
from tests.support.caller import running_caller
from tests.support.deployment import Deployment
from tests.support.downloads import expected_rows, parse_csv
from tests.support.engine import find_download
from tests.support.kills import Killer
from tests.support.pace import measure_pace
from tests.support.waiting import eventually
from workflows.downloads import DownloadWorkflow

RECOVERY_MAX_SECONDS = 4.0
"""On a machine that has nothing else to do: our own time-outs, and another worker's reading of the history."""
RECOVERIES = 3
ROWS = 48_000


async def test_a_killed_worker_is_replaced_within_four_seconds(deployment: Deployment, killer: Killer) -> None:
    """The workflow that a dead worker held in its cache answers from another one in under 4 s, each time.

    A machine that is busy with other things takes as much longer as it takes for anything.
    """
    took = [await _recovery(deployment, killer) for _ in range(RECOVERIES)]
    assert [each for each in took if each.seconds >= RECOVERY_MAX_SECONDS * each.pace] == [], took


@dataclass(frozen=True)
class Recovery:
    """How long it took, and how slow the machine was meanwhile."""

    seconds: float
    pace: float


async def _recovery(deployment: Deployment, killer: Killer) -> Recovery:
    """Kill the worker that holds an export's workflow, and ask the workflow until another worker answers for it."""
    engine = await deployment.engine()
    async with running_caller(deployment) as caller:
        url = f"{deployment.source}/rows?rows={ROWS}&delay_ms=60&seed=1"
        task_id = await caller.start(url, page_size=100)
        await caller.until(task_id, lambda status: status["rows"] > 0)
        workflow = await find_download(engine, task_id)
        holder = await _holder(deployment, workflow)
        before = measure_pace()
        deployment.kill(holder)
        began = time.monotonic()
        # Nobody but another worker can answer.
        status = await workflow.query(DownloadWorkflow.status)
        seconds = time.monotonic() - began
        killer.count(holder, seconds=seconds, hit=status.total == ROWS and status.rows < ROWS)
        assert (await caller.ended(task_id))["state"] == "succeeded"
    await deployment.ready(holder)
    return Recovery(seconds, max(before, measure_pace()))


async def test_a_worker_that_is_asked_to_stop_hands_its_work_over(deployment: Deployment) -> None:
    """SIGTERM in the middle of an export: the worker goes in order, the export ends right."""
    log = deployment.data_dir / "logs" / f"{worker_names()[0]}.log"
    stops = log.read_text().count('"worker_stopped"')
    async with running_caller(deployment) as caller:
        url = f"{deployment.source}/rows?rows={ROWS}&delay_ms=30&seed=2"
        task_id = await caller.start(url, page_size=100)
        await caller.until(task_id, lambda status: status["rows"] > ROWS // 4)
        for name in worker_names():
            os.kill(deployment.pids[name], signal.SIGTERM)
        status = await caller.ended(task_id)

        assert status["state"] == "succeeded", status
        assert parse_csv(await caller.file(task_id)) == expected_rows(2, range(ROWS))
    # The other one may be back first, and end the export while this one still goes.
    await eventually(lambda: log.read_text().count('"worker_stopped"') > stops)


async def _holder(deployment: Deployment, workflow: WorkflowHandle[Any, Any]) -> str:
    """Name the worker process that took the workflow's last task, and so holds it in its cache."""
    history = await workflow.fetch_history()
    identities = [
        event.workflow_task_started_event_attributes.identity
        for event in history.events
        if event.HasField("workflow_task_started_event_attributes")
    ]
    pid = int(identities[-1].partition("@")[0])
    return next(name for name in worker_names() if deployment.pids[name] == pid)
