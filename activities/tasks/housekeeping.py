"""Housekeeping of the room: runs from which lanes have gone on, tasks whose time is over, texts that are no task's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from activities.tasks import retention
from activities.tasks.whereabouts import Whereabouts
from domain.tasks import names
from infra import log
from services.services import Services

MOST: Final = 5_000
"""Of one time; the next one takes the rest."""


class TaskHousekeeping:
    """The activity that keeps the engine to what somebody still wants."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._database = services.database
        self._whereabouts = Whereabouts(services.engine, services.database, activity.heartbeat)
        self._kept = timedelta(hours=services.settings.tasks.runs_kept_hours)
        self._kept_after_end = timedelta(days=services.settings.tasks.archive_kept_days)

    @activity.defn(name=names.PURGE)
    async def purge(self) -> None:
        """Remove what nobody wants any more; the lanes are asked last, for they may not answer."""
        await self._purge_runs()
        forgotten = discarded = 0
        try:
            if self._kept_after_end:
                forgotten = await retention.forget(
                    self._database, self._whereabouts, self._kept_after_end, activity.heartbeat
                )
            discarded = await retention.discard(self._database, self._whereabouts, activity.heartbeat)
        except RPCError as error:
            # The next time goes on from here.
            log.get(__name__).warning("lane_not_asked", error=repr(error))
        if forgotten or discarded:
            log.get(__name__).info("tasks_purged", tasks=forgotten, texts=discarded)

    async def _purge_runs(self) -> None:
        """Delete histories whose lanes carried on long ago: they hold every task once for each request about it."""
        before = datetime.now(UTC) - self._kept
        query = (
            f"WorkflowType = 'TaskLane' AND ExecutionStatus = 'ContinuedAsNew' AND CloseTime < '{before.isoformat()}'"
        )
        # All are found before the first is deleted: what is deleted moves the pages of what is left.
        runs = [(each.id, each.run_id) async for each in self._engine.list_workflows(query, limit=MOST)]
        for workflow_id, run_id in runs:
            await self._delete(WorkflowExecution(workflow_id=workflow_id, run_id=run_id))
            activity.heartbeat()
        if runs:
            log.get(__name__).info("task_runs_purged", runs=len(runs))

    async def _delete(self, run: WorkflowExecution) -> None:
        request = DeleteWorkflowExecutionRequest(namespace=self._engine.namespace, workflow_execution=run)
        try:
            await self._engine.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            # What was deleted is found for a while yet.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
