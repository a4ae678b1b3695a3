"""Looking into the engine from the fault tests."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client, WorkflowHandle

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
