"""Backfills in the database: their records, the slices that they read next, and who is told of one that failed."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from domain.orders import backfills
from domain.orders.activity_models import (
    Alarm,
    AlarmsResult,
    BackfillBatchInput,
    BackfillBatchResult,
    BackfillInput,
    EndBackfillInput,
)
from services.services import Services
from stores.orders import backfills as records


class OrderBackfills:
    """What the plan of a backfill, and the watch over all of them, need of the database."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine

    @activity.defn(name="order_backfill_begin")
    async def begin(self, order: BackfillInput) -> None:
        """Enter the record, unless it is there already."""
        await records.enter(self._database, order, activity.info().workflow_id or "")

    @activity.defn(name="order_backfill_step")
    async def step(self, order: BackfillBatchInput) -> BackfillBatchResult:
        """Note how far the backfill is, and say which slices are next."""
        return BackfillBatchResult(jobs=await records.advance(self._database, order))

    @activity.defn(name="order_backfill_end")
    async def end(self, order: EndBackfillInput) -> AlarmsResult:
        """Close the record, once, and say whom to tell that the backfill has failed."""
        fault = order.fault or order.progress.fault
        told = await records.finish(self._database, order.backfill_id, order.progress, fault)
        return AlarmsResult(alarms=[told] if told else [])

    async def close_lost(self) -> list[Alarm]:
        """Close the records of backfills whose workflow was ended by hand, and say whom to tell."""
        rows = await records.list_running(self._database)
        gone = [row.backfill_id for row in rows if not await is_running(self._engine, row.workflow_id)]
        closed = [
            await records.close(self._database, backfill_id, backfills.BACKFILL_TERMINATED) for backfill_id in gone
        ]
        return [told for told in closed if told]


async def is_running(engine: Client, workflow_id: str) -> bool:
    """Whether a workflow is under way in the engine."""
    try:
        description = await engine.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return description.status is WorkflowExecutionStatus.RUNNING
