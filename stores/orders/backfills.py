"""Records of backfills."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, or_, select

from domain.faults import FaultRecord
from domain.orders.activity_models import BackfillBatchInput, BackfillInput, PlatformAlarm, SliceJob
from domain.orders.slices import BATCH_SLICES, BackfillProgress, BackfillState
from infra import log, metrics
from infra.database import Database, Session
from stores import keyset
from stores.orders import ledger
from stores.orders.platforms import build_alarm
from stores.tables.orders import OrderBackfill, OrderPlatform


async def insert_backfill_if_new(database: Database, params: BackfillInput, workflow_id: str) -> None:
    """Insert the record of a backfill that has been started; does nothing if it exists."""
    window = params.window
    async with database.session() as session:
        values = {
            "backfill_id": params.backfill_id,
            "platform": params.platform,
            "workflow_id": workflow_id,
            "asked_by": params.requested_by,
            "asked_at": params.requested_at,
            "start_at": window.start,
            "end_at": window.end,
            "state": BackfillState.RUNNING,
            "slices": await ledger.count_rereadable_slices(session, params.platform, window.start, window.end),
            "read": 0,
            "failed": 0,
        }
        await session.exec(insert(OrderBackfill).values(values).on_conflict_do_nothing())


async def save_progress_and_list_next(database: Database, params: BackfillBatchInput) -> list[SliceJob]:
    """Save the progress of a backfill, and return its next slices; none once too many have failed."""
    async with database.session() as session:
        for unread in params.unread:
            await ledger.record_failed_reread(session, params.platform, unread.window, unread.fault)
        await _save_progress(session, params.backfill_id, params.progress)
        if params.progress.has_too_many_consecutive_failures:
            return []
        after = params.progress.read_to or params.window.start
        return await ledger.list_rereadable_slices(session, params.platform, after, params.window.end, BATCH_SLICES)


async def close_and_alarm_if_failed(
    database: Database, backfill_id: str, progress: BackfillProgress, fault: FaultRecord | None, call: str
) -> PlatformAlarm | None:
    """Save the progress of a backfill, and close its record; return an alarm if it has failed.

    Args:
        call: Of the activity that closes it: where it is repeated, the same alarm is returned. The one before may be
            lost with the worker that it was returned to.
    """
    async with database.session() as session:
        await _save_progress(session, backfill_id, progress)
        return await _close_record_and_build_alarm_if_failed(session, backfill_id, fault, call)


async def close_as_failed(database: Database, backfill_id: str, fault: FaultRecord, call: str) -> PlatformAlarm | None:
    """Close the record of a backfill that has failed, with its progress so far; return an alarm, as above."""
    async with database.session() as session:
        return await _close_record_and_build_alarm_if_failed(session, backfill_id, fault, call)


async def list_running_backfills(database: Database, closed_by: str | None = None) -> list[OrderBackfill]:
    """List the records of running backfills, and of those that this call of an activity has closed.

    Args:
        closed_by: Only of a call that is repeated: for it, all records are read.
    """
    found = col(OrderBackfill.state) == BackfillState.RUNNING
    if closed_by is not None:
        found = or_(found, col(OrderBackfill.closed_by) == closed_by)
    async with database.session() as session:
        return list(await session.exec(select(OrderBackfill).where(found)))


async def _save_progress(session: Session, backfill_id: str, progress: BackfillProgress) -> None:
    await session.exec(
        update(OrderBackfill)
        .where(col(OrderBackfill.backfill_id) == backfill_id, col(OrderBackfill.state) == BackfillState.RUNNING)
        .values(read=progress.read, failed=progress.failed, read_to=progress.read_to)
    )


async def _close_record_and_build_alarm_if_failed(
    session: Session, backfill_id: str, fault: FaultRecord | None, call: str
) -> PlatformAlarm | None:
    """Close a record if it is open; return an alarm if it has failed and its platform has an address for alarms.

    It is gone where its platform was removed.
    """
    row = await session.get(OrderBackfill, backfill_id, with_for_update=True)
    if row is None:
        return None
    if row.state != BackfillState.RUNNING:
        return await _build_alarm(session, row, fault) if fault is not None and row.closed_by == call else None
    row.state = BackfillState.SUCCEEDED if fault is None else BackfillState.FAILED
    row.fault, row.closed_by = None if fault is None else fault.model_dump(), call
    row.finished_at = await ledger.read_database_time(session)
    session.add(row)
    metrics.BACKFILLS.labels(row.platform, row.state).inc()
    counts = {"slices": row.slices, "read": row.read, "failed": row.failed}
    if fault is None:
        log.get(__name__).info("order_backfill_done", platform=row.platform, backfill_id=backfill_id, **counts)
        return None
    log.get(__name__).error(
        "order_backfill_failed", platform=row.platform, backfill_id=backfill_id, code=fault.code, **counts
    )
    return await _build_alarm(session, row, fault)


async def _build_alarm(session: Session, row: OrderBackfill, fault: FaultRecord) -> PlatformAlarm | None:
    platform = await session.get_one(OrderPlatform, row.platform)
    if platform.notify is None:
        return None
    message = (
        f"The backfill of {row.start_at.isoformat()} to {row.end_at.isoformat()}, which {row.asked_by} asked for, has "
        f"failed: {fault.sentence} What it read is kept, and no mark has moved. "
        f"GET /v1/platforms/{row.platform}/backfills/{row.backfill_id} shows it."
    )
    return build_alarm(platform, platform.notify, "orders.backfill_failed", message)


async def find_backfill(session: Session, platform: str, backfill_id: str) -> OrderBackfill | None:
    """Return a backfill of a platform, or None."""
    row = await session.get(OrderBackfill, backfill_id)
    return None if row is None or row.platform != platform else row


async def find_newest_backfill(session: Session, platform: str) -> OrderBackfill | None:
    """Return the newest backfill of a platform, or None."""
    return next(iter(await list_backfill_page_plus_one(session, platform, None, None, 1)), None)


async def find_running_backfill(session: Session, workflow_id: str) -> OrderBackfill | None:
    """Return the running backfill of a workflow, or None."""
    statement = select(OrderBackfill).where(
        OrderBackfill.workflow_id == workflow_id, OrderBackfill.state == BackfillState.RUNNING
    )
    return (await session.exec(statement.order_by(col(OrderBackfill.asked_at).desc()).limit(1))).one_or_none()


async def list_backfill_page_plus_one(
    session: Session, platform: str, state: BackfillState | None, after: tuple[datetime, str] | None, limit: int
) -> Sequence[OrderBackfill]:
    """List backfills of a platform, newest first, and one more if another page follows."""
    statement = select(OrderBackfill).where(OrderBackfill.platform == platform)
    if state is not None:
        statement = statement.where(OrderBackfill.state == state)
    place = (OrderBackfill.asked_at, OrderBackfill.backfill_id)
    return (await session.exec(keyset.select_page_plus_one(statement, place, after, limit))).all()
