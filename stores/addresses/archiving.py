"""Archiving: what is done moves to the history, so that the log holds what is not; what is past its time is removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import text
from sqlmodel import SQLModel

from infra.database import Database
from stores.tables.addresses import AddressMessage, ArchivedMessage

BATCH: Final = 5_000


def _columns(table: type[SQLModel]) -> list[str]:
    return [column.name for column in table.__table__.columns if column.name != "archived_at"]  # type: ignore[attr-defined]


_ALL: Final = ", ".join(_columns(AddressMessage))
_MOVE: Final = f"""
    WITH moved AS (
        DELETE FROM {AddressMessage.__tablename__} WHERE id IN (
            SELECT id FROM {AddressMessage.__tablename__}
            WHERE proc_flag = 'Y' AND NOT coalesce(wait_reason ? 'unsure', false) LIMIT $1 FOR UPDATE SKIP LOCKED
        ) RETURNING {_ALL}
    )
    INSERT INTO {ArchivedMessage.__tablename__} ({_ALL}) SELECT {_ALL} FROM moved
    """  # noqa: S608 - names of ours


_KEPT_SINCE: Final = {
    "im_infi_addr_sync_log_his": "archived_at",
    "addr_sync_keys": "created_at",
    "addr_sync_quarantine": "created_at",
}
KEPT_TABLES: Final = (*_KEPT_SINCE,)
"""Tables whose rows are kept for a time, and nothing else is done with them."""


async def archive(database: Database) -> int:
    """Move all that is done, but for what a module has still to be asked about; says how many messages that were."""
    total = 0
    while True:
        async with database.connection() as connection:
            status = await connection.execute(_MOVE, BATCH)
        moved = int(status.rpartition(" ")[2])
        total += moved
        if moved < BATCH:
            return total


async def purge(database: Database, table: str, kept: timedelta, limit: int) -> int:
    """Remove rows of such a table that are past their time, so many at most; how many they were."""
    past = f"SELECT ctid FROM {table} WHERE {_KEPT_SINCE[table]} < now() - CAST(:kept AS interval) LIMIT :batch"  # noqa: S608 - names of ours
    statement = text(f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({past}))")  # noqa: S608 - names of ours
    async with database.session() as session:
        return (await (await session.connection()).execute(statement, {"kept": kept, "batch": limit})).rowcount
