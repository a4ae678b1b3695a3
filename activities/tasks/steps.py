"""The steps of a lane, each safe to repeat: keep, close."""

from __future__ import annotations

from temporalio import activity

from domain.tasks.carrying import CloseOrder, KeepOrder, Kept
from services.services import Services
from stores.tasks import lanes


class TaskSteps:
    """The activities of the tasks room, with the clients they work with."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="task_keep")
    async def keep(self, keep: KeepOrder) -> Kept:
        """Write down how a lane stands and which tasks have ended, all at once.

        A lane that was begun before its time is not counted in until that comes.
        """
        return await lanes.keep(self._database, keep)

    @activity.defn(name="task_close")
    async def close(self, close: CloseOrder) -> None:
        """Count a lane out."""
        await lanes.close(self._database, close)
