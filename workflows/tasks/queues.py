"""The task queue of tasks."""

from __future__ import annotations

from typing import Final

from activities.tasks.activities import LaneActivities, TaskHousekeeping
from domain.tasks import names
from services.services import Services
from systems.protocol import SystemQueues, TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.tasks.lane import TaskLane

WORKFLOWS: Final = (TaskLane,)


def build_queues(services: Services) -> list[TaskQueue]:
    """Return the one queue: lanes, their activities, and housekeeping."""
    lane = LaneActivities(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                lane.save_checkpoint,
                lane.remove_open_lane,
                TaskHousekeeping(services).purge_expired_tasks_texts_and_runs,
            ],
            slots=20,
        )
    ]


QUEUES: Final = SystemQueues(names=names.QUEUES, workflows=WORKFLOWS, build=build_queues)
