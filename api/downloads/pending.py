"""Downloads that no worker has taken up: they have no row yet, so the engine is asked for them."""

from __future__ import annotations

from temporalio.client import WorkflowExecution

from api.downloads.answers import Asked, ListedDownload
from domain.downloads import names
from domain.downloads.models import State
from infra import temporal
from services.services import Services
from stores.downloads import searching

LOOKED_THROUGH_MAX = 1_000
"""However many a project has waiting, a list looks no further: quotas keep far fewer active."""


async def pending(services: Services, project_id: str | None) -> list[ListedDownload]:
    """What waits for its first processing, of a project or of all, by what the engine was given with it."""
    query = (
        f"{temporal.STATE.name} = '{State.PENDING}' AND WorkflowType = 'DownloadWorkflow' "
        "AND ExecutionStatus = 'Running'"
    )
    if project_id is not None:
        query += f" AND {temporal.PROJECT.name} = '{project_id}'"
    runs = services.engine.list_workflows(query, limit=LOOKED_THROUGH_MAX)
    found = [await _listed(run) async for run in runs]
    # The engine's index is behind: some are taken up by now, and one that is retried is listed by its row.
    begun = await searching.list_recorded(services.database, [one.task_id for one in found])
    return [one for one in found if one.task_id not in begun]


async def _listed(run: WorkflowExecution) -> ListedDownload:
    project_id, task_id = names.names_in(run.id)
    asked = await run.memo_value(names.ASKED_MEMO, type_hint=Asked)
    return ListedDownload(
        task_id=task_id,
        project_id=project_id,
        state=State.PENDING,
        label=State.PENDING.label,
        type=asked.type,
        file_name=asked.file_name,
        operator_id=asked.operator_id,
        rows=0,
        total=None,
        processings=0,
        created_at=run.start_time,
    )
