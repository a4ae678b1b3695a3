"""Worker processes: the queues of all systems, and serving some of them in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from infra import log, memory
from infra.component_settings import EngineClientSettings
from infra.database import DATABASE_ERRORS, IDLE_TIMEOUT_SECONDS, Database
from infra.temporal import BUILD_ID, build_patch_check
from services.services import Services
from stores import worker_heartbeats
from systems.protocol import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.systems import SystemQueues, import_queues
from workflows.webhooks.queues import QUEUES as WEBHOOK_QUEUES

SYSTEM_QUEUES: Final[Sequence[SystemQueues]] = (*import_queues().values(), WEBHOOK_QUEUES)
"""The queues of every system, and those of the webhooks that they share."""

WORKFLOW_TASK_POLLS_MAX: Final = 5
"""Polls at a time for tasks of the workflows of a queue, on each of its two lists."""


def build_queues(services: Services) -> list[TaskQueue]:
    """Build every queue that exists at all times."""
    return [queue for system in SYSTEM_QUEUES for queue in system.build(services)]


def list_workflows() -> list[type]:
    """Return every workflow class."""
    return [HousekeepingWorkflow, *(workflow for system in SYSTEM_QUEUES for workflow in system.workflows)]


def list_queue_names() -> tuple[str, ...]:
    """Return the task queues that a worker can be asked to serve."""
    return tuple(name for system in SYSTEM_QUEUES for name in system.names)


def is_known_queue(name: str) -> bool:
    """Return whether a worker can be asked to serve this queue."""
    return any(system.can_serve(name) for system in SYSTEM_QUEUES)


def build_worker(engine: Client, settings: EngineClientSettings, queue: TaskQueue) -> Worker:
    """Build the Temporal worker of one queue."""
    return Worker(
        engine,
        build_id=BUILD_ID,
        task_queue=queue.name,
        workflows=queue.workflows,
        activities=queue.activities,
        max_concurrent_activities=queue.slots,
        # Polls that wait cost the engine memory and processor time: an idle worker has one a queue.
        workflow_task_poller_behavior=_build_poller_behavior(WORKFLOW_TASK_POLLS_MAX),
        activity_task_poller_behavior=_build_poller_behavior(queue.polls),
        max_eager_activity_reservations_per_workflow_task=queue.eager,
        # A killed worker freezes its cached workflows for this long; the default of 10 s is felt by users.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_timeout_seconds),
        # Heartbeats carry the progress that people watch.
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_seconds),
        patch_activation_callback=build_patch_check(settings.compatible_with),
    )


def _build_poller_behavior(polls_max: int) -> PollerBehaviorAutoscaling:
    return PollerBehaviorAutoscaling(minimum=1, initial=min(2, polls_max), maximum=polls_max)


async def serve_queues(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Serve the named queues until `stop` is set; activities may then finish within the graceful time."""
    chosen = [queue for queue in build_queues(services) if queue.is_served_by_worker_of(queues)]
    workers = [build_worker(services.engine, services.settings.engine, queue) for queue in chosen]
    async with asyncio.TaskGroup() as group:
        group.create_task(_write_heartbeats(services, [queue.name for queue in chosen], stop))
        for system in SYSTEM_QUEUES:
            group.create_task(system.run_background(services, queues, stop))
        for worker in workers:
            group.create_task(worker.run())
        group.create_task(memory.return_memory_periodically(stop))
        group.create_task(_terminate_stalled_copies_periodically(services.database, stop))
        await stop.wait()
        for worker in workers:
            group.create_task(worker.shutdown())


async def _write_heartbeats(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Show at intervals that this process is not killed, suspended or blocked, until `stop` is set."""
    identity = services.engine.identity
    while not stop.is_set():
        await _await_and_log_database_error(worker_heartbeats.write_heartbeat(services.database, identity, queues))
        await _wait_for_stop_or_timeout(stop, worker_heartbeats.INTERVAL_SECONDS)
    await _await_and_log_database_error(
        worker_heartbeats.delete_heartbeat_and_day_old_ones(services.database, identity)
    )


async def _terminate_stalled_copies_periodically(database: Database, stop: asyncio.Event) -> None:
    """End at intervals what workers that hang hold up in the database, until `stop` is set."""
    while not stop.is_set():
        await _await_and_log_database_error(database.terminate_stalled_copies())
        await _wait_for_stop_or_timeout(stop, IDLE_TIMEOUT_SECONDS)


async def _wait_for_stop_or_timeout(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


async def _await_and_log_database_error(statement: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(worker_heartbeats.INTERVAL_SECONDS):
            await statement
    except DATABASE_ERRORS as error:
        log.get(__name__).warning("worker_statement_failed", error=str(error))
