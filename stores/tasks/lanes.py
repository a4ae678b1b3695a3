"""Lanes in the database: what each writes down of itself and its tasks, and that whoever listens hears of it."""

from __future__ import annotations

from domain.tasks.carrying import CloseOrder, KeepOrder, Kept
from infra.database import Database
from stores.tables.tasks import HEADS_CHANNEL
from stores.tasks import archive, heads


async def keep(database: Database, order: KeepOrder) -> Kept:
    """Write how a lane stands and which tasks have ended, in one transaction.

    A lane that was begun before its time is not counted in until that comes.
    """
    async with database.session() as session:
        if order.is_untouched and await heads.is_ahead(session, order.type, order.pos):
            return Kept()
        if order.ended:
            await archive.write(session, order.type, order.pos, order.ended)
        is_past = await heads.open_lane(session, order.type, order.pos) if order.is_first else False
        await heads.tell(session, order.type, order.pos, order.head)
        await database.notify(session, HEADS_CHANNEL, f"{order.type}/{order.pos}")
    return Kept(is_past=is_past)


async def close(database: Database, order: CloseOrder) -> None:
    """Count a lane out."""
    async with database.session() as session:
        await heads.close_lane(session, order.type, order.pos)
        await database.notify(session, HEADS_CHANNEL, f"{order.type}/{order.pos}")
