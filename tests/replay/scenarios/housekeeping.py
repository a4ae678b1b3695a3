"""Housekeeping to be recorded: every system with nothing to do, a run that fails, and one that is cancelled."""

from __future__ import annotations

from collections.abc import Mapping

from domain import webhooks
from infra import housekeeping
from infra.housekeeping import HousekeepingActivityNamesInput
from tests.replay.recorder import Recorder
from workflows.housekeeping import HousekeepingWorkflow
from workflows.systems import import_names_modules

VARIABLES: Mapping[str, str] = {}
WORKFLOW = HousekeepingWorkflow.__name__


async def record(recorder: Recorder) -> None:
    """Keep installation once in each system."""
    for names in import_names_modules():
        workflow_id = f"{housekeeping.build_schedule_id(names.SYSTEM)}-recorded"
        order = HousekeepingActivityNamesInput(activities=names.HOUSEKEEPING)
        await recorder.engine.execute_workflow(HousekeepingWorkflow.run, order, id=workflow_id, task_queue=names.QUEUE)
        await recorder.keep(workflow_id, WORKFLOW, f"nothing-due-{names.SYSTEM}")
    async with recorder.rename_table_during_block("webhook_deliveries"):
        await _record_failed(recorder)
        await _record_cancelled(recorder)


async def _record_failed(recorder: Recorder) -> None:
    """The first activity fails in all its attempts; the second is called nevertheless, and then the run fails."""
    workflow_id = await _start_webhooks(recorder, "failed")
    await recorder.wait_for_end(workflow_id)
    await recorder.keep(workflow_id, WORKFLOW, "failed")


async def _record_cancelled(recorder: Recorder) -> None:
    """Cancelled while an activity that failed waits for its next attempt: the second activity is not called."""
    workflow_id = await _start_webhooks(recorder, "cancelled")
    await recorder.wait_for_failed_attempt(workflow_id)
    await recorder.engine.get_workflow_handle(workflow_id).cancel()
    await recorder.wait_for_end(workflow_id)
    await recorder.keep(workflow_id, WORKFLOW, "cancelled")


async def _start_webhooks(recorder: Recorder, name: str) -> str:
    workflow_id = f"{housekeeping.build_schedule_id(webhooks.SYSTEM)}-{name}"
    order = HousekeepingActivityNamesInput(activities=webhooks.HOUSEKEEPING)
    await recorder.engine.start_workflow(HousekeepingWorkflow.run, order, id=workflow_id, task_queue=webhooks.QUEUE)
    return workflow_id
