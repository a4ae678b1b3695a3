"""Worker processes: the table of queues of all systems, and serving those that a process is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from infra import memory
from infra.settings import EngineSettings
from services.services import Services
from systems.queues import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.systems import Work, import_works
from workflows.webhooks import queues as webhooks

WORKS: Final[Sequence[Work]] = (*import_works().values(), webhooks)
"""The queues of every system, and those of the webhooks that they share."""


def table(services: Services) -> list[TaskQueue]:
    """All queues that exist at all times."""
    return [queue for work in WORKS for queue in work.build_queues(services)]


def workflows() -> list[type]:
    """All workflows, for the replayer."""
    return [HousekeepingWorkflow, *(workflow for work in WORKS for workflow in work.WORKFLOWS)]


def names() -> tuple[str, ...]:
    """The task queues that a worker can be told to serve."""
    return tuple(name for work in WORKS for name in work.NAMES)


def is_known(name: str) -> bool:
    """Whether a worker can be told to serve this queue."""
    return any(work.can_serve(name) for work in WORKS)


def build(client: Client, engine: EngineSettings, queue: TaskQueue) -> Worker:
    """A Temporal worker for one line of the table."""
    return Worker(
        client,
        task_queue=queue.name,
        workflows=queue.workflows,
        activities=queue.activities,
        max_concurrent_activities=queue.slots,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(queue.polls),
        max_eager_activity_reservations_per_workflow_task=queue.eager,
        # A killed worker freezes its cached workflows for this long; the default of 10 s is felt by users.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=engine.sticky_timeout_seconds),
        # Heartbeats carry the progress that people watch.
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=engine.graceful_shutdown_seconds),
    )


async def serve(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Serve the named queues until told to stop; what runs may finish within the graceful time."""
    chosen = [queue for queue in table(services) if queue.is_among(queues)]
    workers = [build(services.engine, services.settings.engine, queue) for queue in chosen]
    async with asyncio.TaskGroup() as group:
        for work in WORKS:
            group.create_task(work.run_background(services, queues, stop))
        for worker in workers:
            group.create_task(worker.run())
        group.create_task(memory.give_back(stop))
        await stop.wait()
        for worker in workers:
            group.create_task(worker.shutdown())
