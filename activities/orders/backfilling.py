"""Backfills in the database: their records, the slices that they read next, and who is told of one that failed."""

from __future__ import annotations

from sqlmodel import select
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from domain.orders import backfills
from domain.orders.backfills import (
    BackfillBatch,
    BackfillEnd,
    BackfillOrder,
    BackfillState,
    BackfillStep,
)
from domain.orders.steps import Alarm, Alarms
from services.services import Services
from stores.orders import ledger
from stores.orders.backfills import close as _close
from stores.orders.backfills import enter
from stores.orders.backfills import note as _note
from stores.tables.orders import OrderBackfill


class OrderBackfills:
    """What the plan of a backfill, and the watch over all of them, need of the database."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine

    @activity.defn(name="order_backfill_begin")
    async def begin(self, order: BackfillOrder) -> None:
        """Enter the record, unless it is there already."""
        async with self._database.session() as session:
            await enter(session, order, activity.info().workflow_id or "")

    @activity.defn(name="order_backfill_step")
    async def step(self, order: BackfillStep) -> BackfillBatch:
        """Note how far the backfill is, and say which slices are next."""
        async with self._database.session() as session:
            for unread in order.unread:
                await ledger.fail_reread(session, order.platform, unread.window, unread.fault)
            await _note(session, order.backfill_id, order.progress)
            if order.progress.is_hopeless:
                return BackfillBatch()
            after = order.progress.read_to or order.window.start
            jobs = await ledger.rereadable(session, order.platform, after, order.window.end, backfills.BATCH)
        return BackfillBatch(jobs=jobs)

    @activity.defn(name="order_backfill_end")
    async def end(self, order: BackfillEnd) -> Alarms:
        """Close the record, once, and say whom to tell that the backfill has failed."""
        async with self._database.session() as session:
            await _note(session, order.backfill_id, order.progress)
            told = await _close(session, order.backfill_id, order.fault or order.progress.fault)
        return Alarms(alarms=[told] if told else [])

    async def close_lost(self) -> list[Alarm]:
        """Close the records of backfills whose workflow was ended by hand, and say whom to tell."""
        running = select(OrderBackfill).where(OrderBackfill.state == BackfillState.RUNNING)
        async with self._database.session() as session:
            rows = (await session.exec(running)).all()
        gone = [row.backfill_id for row in rows if not await is_running(self._engine, row.workflow_id)]
        alarms = []
        for backfill_id in gone:
            async with self._database.session() as session:
                if told := await _close(session, backfill_id, backfills.ENDED_BY_HAND):
                    alarms.append(told)
        return alarms


async def is_running(engine: Client, workflow_id: str) -> bool:
    """Whether a workflow is under way in the engine."""
    try:
        description = await engine.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return description.status is WorkflowExecutionStatus.RUNNING
