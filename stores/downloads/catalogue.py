"""The catalogue row of a download: written at the start and at the end of its run, never in between."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from domain.downloads import names
from domain.downloads.activity_models import FinishOrder, RecordOrder
from domain.downloads.models import DownloadOrder, State
from infra.database import Database
from infra.objects import ObjectStore
from stores.tables.downloads import Download

CHANNEL = "haulage_downloads"


async def record(database: Database, record: RecordOrder) -> None:
    """Insert the row, or say that the download is processed once more."""
    order, now = record.order, datetime.now(UTC)
    begun = {"state": State.RUNNING, "processings": record.processings, "finished_at": None, "fault": None}
    statement = insert(Download).values(
        task_id=order.task_id,
        project_id=order.project_id,
        operator_id=order.operator_id,
        file_name=order.file_name,
        type=order.type,
        request=order.model_dump(mode="json"),
        created_at=order.created_at or now,
        started_at=now,
        **begun,
    )
    async with database.session() as session:
        await session.exec(statement.on_conflict_do_update(index_elements=["task_id"], set_=begun))
        await tell(database, session, order, State.RUNNING)


async def finish(database: Database, finish: FinishOrder) -> None:
    """Write the end, and notify in the same transaction."""
    now, outcome, order = datetime.now(UTC), finish.outcome, finish.order
    values: dict[str, object] = {
        "state": outcome.state,
        "finished_at": now,
        "processings": finish.processings,
        "fetchers": finish.fetchers,
        "total_rows": outcome.total,
        "rows": finish.rows,
        "fault": outcome.fault.model_dump() if outcome.fault else None,
    }
    if outcome.file is not None:
        values |= {
            # Several books are an archive, whose name ends in another way than the one that was asked for.
            "file_name": outcome.file.name,
            "rows": outcome.file.rows,
            "bytes": outcome.file.bytes,
            "etag": outcome.file.etag,
            "file": outcome.file.model_dump(),
            "expires_at": now + timedelta(seconds=order.expires_in_seconds),
        }
    async with database.session() as session:
        await session.exec(update(Download).where(col(Download.task_id) == order.task_id).values(**values))
        await tell(database, session, order, outcome.state)


async def list_expired(database: Database, limit: int) -> list[Download]:
    """Finished downloads whose files' time is over, those first whose time was over first."""
    due = select(Download).where(col(Download.state) == State.SUCCEEDED, col(Download.expires_at) < datetime.now(UTC))
    async with database.session() as session:
        return list(await session.exec(due.order_by(col(Download.expires_at)).limit(limit)))


async def remove(database: Database, objects: ObjectStore, order: DownloadOrder) -> None:
    """Remove a finished file: its time is over now."""
    # First the bytes: a row that says expired while the file lies there would never be looked at again.
    await objects.delete_prefix(names.files(order))
    over = func.least(col(Download.expires_at), datetime.now(UTC))
    async with database.session() as session:
        values = {"state": State.EXPIRED, "file": None, "expires_at": over}
        await session.exec(update(Download).where(col(Download.task_id) == order.task_id).values(**values))
        await tell(database, session, order, State.EXPIRED)


async def tell(database: Database, session: AsyncSession, order: DownloadOrder, state: State) -> None:
    """Tell every API process, if and when the session commits."""
    told = {"project_id": order.project_id, "task_id": order.task_id, "state": state}
    await database.notify(session, CHANNEL, json.dumps(told))
