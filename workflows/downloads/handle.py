"""Start and find workflows of downloads from outside, by registered name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowHandle
from temporalio.common import Priority

from domain.downloads import names
from domain.downloads.activity_models import DownloadInput
from domain.downloads.models import DownloadSpec, DownloadState, DownloadStatus
from infra import starts
from infra.starts import SameIdPolicy, WorkflowStart
from systems.protocol import create_no_schedules


async def start_download(
    engine: Client, spec: DownloadSpec, request_memo: BaseModel, task_timeout: timedelta, *, allow_restart: bool = False
) -> bool:
    """Start the workflow of a download; return False if it is running already.

    Args:
        request_memo: What the API shows of the request while the download has no row.
        allow_restart: Whether an earlier run may have ended.
    """
    run = WorkflowStart(
        workflow=names.DOWNLOAD_WORKFLOW,
        argument=DownloadInput(spec=spec),
        id=names.build_download_workflow_id(spec.project_id, spec.task_id),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE_WHILE_RUNNING if allow_restart else SameIdPolicy.REFUSE,
        attributes=starts.build_search_attributes(
            names.SYSTEM, project_id=spec.project_id, state=DownloadState.PENDING
        ),
        summary=f"export to {spec.file_name}",
        memo={names.NAME_MEMO: spec.file_name, names.REQUEST_MEMO: request_memo, names.STATUS_MEMO: DownloadStatus()},
        task_timeout=task_timeout,
        # Its steps inherit it. Slow sources hold the places of a queue: one project's downloads wait behind each other.
        priority=Priority(fairness_key=spec.project_id),
    )
    return await starts.start_workflow(engine, run)


def get_download_handle(engine: Client, project_id: str, task_id: str) -> WorkflowHandle[Any, Any]:
    """Return the handle of a download's workflow."""
    return engine.get_workflow_handle(names.build_download_workflow_id(project_id, task_id))


create_or_update_schedules = create_no_schedules
