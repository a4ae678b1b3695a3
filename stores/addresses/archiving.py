"""Archiving: what is done moves to the history, so that the log holds what is not."""

from __future__ import annotations

from typing import Final

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
