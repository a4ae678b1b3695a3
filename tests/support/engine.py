"""Workflows, as the engine knows them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from tests.support.waiting import eventually


async def find_download(engine: Client, task_id: str) -> WorkflowHandle[Any, Any]:
    """The workflow of a download."""

    async def look() -> WorkflowHandle[Any, Any] | None:
        async for execution in engine.list_workflows("WorkflowType = 'DownloadWorkflow'"):
            if execution.id.endswith(task_id):
                return engine.get_workflow_handle(execution.id)
        return None

    found = await eventually(look)
    assert found
    return found


async def terminate_all(engine: Client, query: str) -> None:
    """End the open workflows that a query of the engine's finds."""
    async for execution in engine.list_workflows(f"{query} AND ExecutionStatus = 'Running'"):
        with suppress(RPCError):  # it ended meanwhile
            await engine.get_workflow_handle(execution.id, run_id=execution.run_id).terminate("its test is over")


async def busy_processes(workflow: WorkflowHandle[Any, Any]) -> set[int]:
    """The ids of the processes that carry out the workflow's activities just now."""
    described = await workflow.describe()
    return {
        int(each.last_worker_identity.partition("@")[0])
        for each in described.raw_description.pending_activities
        if each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    }
