"""Backfills in the database: their records, the slices that they read next, and who is told of one that failed."""

from __future__ import annotations

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, select
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.orders import ledger
from activities.orders.steps import alarm
from domain.faults import FaultRecord
from domain.orders import backfills
from domain.orders.backfills import (
    BackfillBatch,
    BackfillEnd,
    BackfillOrder,
    BackfillState,
    BackfillStep,
    Progress,
)
from domain.orders.steps import Alarm, Alarms
from infra import log, metrics
from infra.database import Session
from infra.services import Services
from infra.tables.orders import OrderBackfill, OrderPlatform


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


async def enter(session: Session, order: BackfillOrder, workflow_id: str) -> None:
    """Write the record of a backfill that has been started; a second time it changes nothing."""
    window = order.window
    values = {
        "backfill_id": order.backfill_id,
        "platform": order.platform,
        "workflow_id": workflow_id,
        "asked_by": order.asked_by,
        "asked_at": order.asked_at,
        "start_at": window.start,
        "end_at": window.end,
        "state": BackfillState.RUNNING,
        "slices": await ledger.count_rereadable(session, order.platform, window.start, window.end),
        "read": 0,
        "failed": 0,
    }
    await session.exec(insert(OrderBackfill).values(values).on_conflict_do_nothing())


async def _note(session: Session, backfill_id: str, progress: Progress) -> None:
    """Write down how far a backfill is, as long as its record is open."""
    await session.exec(
        update(OrderBackfill)
        .where(col(OrderBackfill.backfill_id) == backfill_id, col(OrderBackfill.state) == BackfillState.RUNNING)
        .values(read=progress.read, failed=progress.failed, read_to=progress.read_to)
    )


async def _close(session: Session, backfill_id: str, fault: FaultRecord | None) -> Alarm | None:
    """End a record that is open; what is told of it, if it has failed and somebody is to be told."""
    row = await session.get_one(OrderBackfill, backfill_id, with_for_update=True)
    if row.state != BackfillState.RUNNING:
        return None
    row.state = BackfillState.SUCCEEDED if fault is None else BackfillState.FAILED
    row.fault = None if fault is None else fault.model_dump()
    row.finished_at = await ledger.database_now(session)
    session.add(row)
    metrics.BACKFILLS.labels(row.platform, row.state).inc()
    if fault is None:
        return None
    log.get(__name__).error(
        "order_backfill_failed", platform=row.platform, backfill_id=backfill_id, code=fault.code, failed=row.failed
    )
    platform = await session.get_one(OrderPlatform, row.platform)
    if platform.notify is None:
        return None
    message = (
        f"The backfill of {row.start_at.isoformat()} to {row.end_at.isoformat()}, which {row.asked_by} asked for, has "
        f"failed: {fault.sentence} What it read is kept, and no mark has moved. "
        f"GET /v1/platforms/{row.platform}/backfills/{backfill_id} shows it."
    )
    return alarm(platform, platform.notify, "orders.backfill_failed", message)


async def is_running(engine: Client, workflow_id: str) -> bool:
    """Whether a workflow is under way in the engine."""
    try:
        description = await engine.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return description.status is WorkflowExecutionStatus.RUNNING
