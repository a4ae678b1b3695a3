"""How workflows of downloads are started, found and steered from outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowHandle
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from domain.downloads import names
from domain.downloads.request import DownloadOrder
from domain.downloads.status import State, Status
from domain.downloads.steps import DownloadRun
from infra import temporal
from infra.settings import Settings


async def start(
    engine: Client, order: DownloadOrder, asked: BaseModel, task_timeout: timedelta, *, again: bool = False
) -> bool:
    """Start the run of an order; False where it is running already.

    Args:
        asked: What callers are shown of the request while the run has no row.
        again: Whether an earlier run may have ended.
    """
    attributes = [
        SearchAttributePair(temporal.ROOM, names.SYSTEM),
        SearchAttributePair(temporal.PROJECT, order.project_id),
        SearchAttributePair(temporal.STATE, State.PENDING),
    ]
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        await engine.start_workflow(
            names.DOWNLOAD_WORKFLOW,
            DownloadRun(order=order),
            id=names.workflow_id(order.project_id, order.task_id),
            task_queue=names.QUEUE,
            id_reuse_policy=reuse,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            task_timeout=task_timeout,
            search_attributes=TypedSearchAttributes(attributes),
            memo={names.NAME_MEMO: order.file_name, names.ASKED_MEMO: asked, names.STATUS_MEMO: Status()},
            static_summary=f"export to {order.file_name}",
        )
    except WorkflowAlreadyStartedError:
        return False
    return True


def get(engine: Client, project_id: str, task_id: str) -> WorkflowHandle[Any, Any]:
    """The run of a download."""
    return engine.get_workflow_handle(names.workflow_id(project_id, task_id))


async def ensure_schedules(client: Client, settings: Settings) -> None:
    """Make none: only housekeeping runs by a schedule."""
