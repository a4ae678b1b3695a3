"""The steps of a lane, each safe to repeat: keep, close."""

from __future__ import annotations

from temporalio import activity

from domain.tasks.carrying import CloseOrder, KeepOrder, Kept
from services.services import Services
from stores.tables.tasks import HEADS_CHANNEL
from stores.tasks import archive, heads


class TaskSteps:
    """The activities of the tasks room, with the clients they work with."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="task_keep")
    async def keep(self, keep: KeepOrder) -> Kept:
        """Write down how a lane stands and which tasks have ended, all at once.

        A lane that was begun before its time is not counted in until that comes.
        """
        async with self._database.session() as session:
            if keep.is_untouched and await heads.is_ahead(session, keep.type, keep.pos):
                return Kept()
            if keep.ended:
                await archive.write(session, keep.type, keep.pos, keep.ended)
            is_past = await heads.open_lane(session, keep.type, keep.pos) if keep.is_first else False
            await heads.tell(session, keep.type, keep.pos, keep.head)
            await self._database.notify(session, HEADS_CHANNEL, f"{keep.type}/{keep.pos}")
        return Kept(is_past=is_past)

    @activity.defn(name="task_close")
    async def close(self, close: CloseOrder) -> None:
        """Count a lane out."""
        async with self._database.session() as session:
            await heads.close_lane(session, close.type, close.pos)
            await self._database.notify(session, HEADS_CHANNEL, f"{close.type}/{close.pos}")
