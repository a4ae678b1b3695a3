"""The task queue of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.tasks.housekeeping import TaskHousekeeping
from activities.tasks.steps import TaskSteps
from domain.tasks import names
from services.services import Services
from systems.protocol import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.tasks.lane import TaskLane

NAMES: Final = names.QUEUES
WORKFLOWS: Final = (TaskLane,)


def can_serve(queue: str) -> bool:
    """Whether a worker can be told to serve this queue."""
    return queue in NAMES


def build_queues(services: Services) -> list[TaskQueue]:
    """Lanes, and what keeps their tasks."""
    steps = TaskSteps(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[steps.keep, steps.close, TaskHousekeeping(services).purge],
            slots=20,
        )
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Run nothing beside the queue."""
