"""The catalogue row of a download: written at the start and at the end of its run, never in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col

from domain.downloads.request import DownloadOrder
from domain.downloads.status import State
from domain.downloads.steps import FinishOrder
from infra.database import Database
from infra.tables.downloads import Download

KEPT_FOR = timedelta(days=7)
CHANNEL = "haulage_downloads"


async def record(database: Database, order: DownloadOrder) -> None:
    """Insert the row, once."""
    now = datetime.now(UTC)
    statement = insert(Download).values(
        task_id=order.task_id,
        project_id=order.project_id,
        operator_id=order.operator_id,
        file_name=order.file_name,
        type=order.type,
        state=State.RUNNING,
        created_at=now,
        started_at=now,
        processings=1,
    )
    async with database.session() as session:
        await session.exec(statement.on_conflict_do_nothing(index_elements=["task_id"]))


async def finish(database: Database, finish: FinishOrder) -> None:
    """Write the end, and notify in the same transaction."""
    now, outcome = datetime.now(UTC), finish.outcome
    values: dict[str, object] = {
        "state": outcome.state,
        "finished_at": now,
        "total_rows": outcome.total,
        "fault": outcome.fault.model_dump() if outcome.fault else None,
    }
    if outcome.file is not None:
        values |= {
            "rows": outcome.file.rows,
            "bytes": outcome.file.bytes,
            "etag": outcome.file.etag,
            "file": outcome.file.model_dump(),
            "expires_at": now + KEPT_FOR,
        }
    async with database.session() as session:
        await session.exec(update(Download).where(col(Download.task_id) == finish.order.task_id).values(**values))
        await database.notify(session, CHANNEL, finish.order.task_id)
