"""The task queue of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.tasks.activities import LaneActivities, TaskHousekeeping
from domain.tasks import names
from services.services import Services
from systems.protocol import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.tasks.lane import TaskLane

NAMES: Final = names.QUEUES
WORKFLOWS: Final = (TaskLane,)


def can_serve(queue: str) -> bool:
    """Return whether a worker can serve this queue."""
    return queue in NAMES


def build_queues(services: Services) -> list[TaskQueue]:
    """Return the one queue: lanes, their activities, and housekeeping."""
    lane = LaneActivities(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[lane.save_checkpoint, lane.close_lane, TaskHousekeeping(services).purge],
            slots=20,
        )
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Do nothing: workers of this queue have no background work."""
