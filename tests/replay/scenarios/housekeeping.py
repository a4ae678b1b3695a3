"""Housekeeping to be recorded: a run of every system with nothing to do takes every step."""

from __future__ import annotations

from collections.abc import Mapping

from infra import housekeeping
from infra.housekeeping import HousekeepingActivityNamesInput
from tests.replay.recorder import Recorder
from workflows.housekeeping import HousekeepingWorkflow
from workflows.systems import import_names_modules

VARIABLES: Mapping[str, str] = {}


async def record(recorder: Recorder) -> None:
    """Keep installation once in each system."""
    for names in import_names_modules():
        workflow_id = f"{housekeeping.build_schedule_id(names.SYSTEM)}-recorded"
        order = HousekeepingActivityNamesInput(activities=names.HOUSEKEEPING)
        await recorder.engine.execute_workflow(HousekeepingWorkflow.run, order, id=workflow_id, task_queue=names.QUEUE)
        await recorder.keep(workflow_id, HousekeepingWorkflow.__name__, f"nothing-due-{names.SYSTEM}")
