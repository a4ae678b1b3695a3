"""Starting a run: the workflow first, under the download's own id; its row follows from there."""

from __future__ import annotations

from datetime import timedelta

from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from api.downloads import answers
from domain.downloads import names
from domain.downloads.request import DownloadOrder
from domain.downloads.status import State, Status
from domain.downloads.steps import DownloadRun
from infra import temporal
from services.services import Services
from workflows.downloads import download


async def start(services: Services, order: DownloadOrder, *, again: bool = False) -> bool:
    """Start the run of an order; False where it is running already.

    Args:
        services: The process' clients.
        order: What to export.
        again: Whether an earlier run may have ended.
    """
    attributes = [
        SearchAttributePair(temporal.ROOM, names.SYSTEM),
        SearchAttributePair(temporal.PROJECT, order.project_id),
        SearchAttributePair(temporal.STATE, State.PENDING),
    ]
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        await services.engine.start_workflow(
            download.DownloadWorkflow.run,
            DownloadRun(order=order),
            id=names.workflow_id(order.project_id, order.task_id),
            task_queue=names.QUEUE,
            id_reuse_policy=reuse,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            task_timeout=timedelta(seconds=services.settings.engine.task_timeout_seconds),
            search_attributes=TypedSearchAttributes(attributes),
            memo={
                names.NAME_MEMO: order.file_name,
                names.ASKED_MEMO: answers.asked(order),
                names.STATUS_MEMO: Status(),
            },
            static_summary=f"export to {order.file_name}",
        )
    except WorkflowAlreadyStartedError:
        return False
    return True
