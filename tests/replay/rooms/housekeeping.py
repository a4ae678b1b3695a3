"""Housekeeping to be recorded: a run with nothing to do takes every step."""

from __future__ import annotations

from collections.abc import Mapping

from domain.downloads import names as downloads_names
from tests.replay.recorder import Recorder
from workflows.housekeeping import HousekeepingWorkflow

VARIABLES: Mapping[str, str] = {}


async def record(recorder: Recorder) -> None:
    """Keep house once."""
    workflow_id = "housekeeping-recorded"
    await recorder.engine.execute_workflow(HousekeepingWorkflow.run, id=workflow_id, task_queue=downloads_names.QUEUE)
    await recorder.keep(workflow_id, HousekeepingWorkflow.__name__, "nothing-due-tasks")
