"""Activities of the lane workflow, each safe to repeat."""

from __future__ import annotations

from temporalio import activity

from domain.tasks.activity_models import CheckpointInput, CheckpointResult, CloseLaneInput
from services.services import Services
from stores.tasks import lanes


class LaneActivities:
    """Activities that save what lanes hold."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="task_save_checkpoint")
    async def save_checkpoint(self, checkpoint: CheckpointInput) -> CheckpointResult:
        """Save a lane's head and its ended tasks in one transaction."""
        return await lanes.save_checkpoint(self._database, checkpoint)

    @activity.defn(name="task_close_lane")
    async def close_lane(self, lane: CloseLaneInput) -> None:
        """Remove a lane from the open lanes of its type."""
        await lanes.close_lane(self._database, lane)
