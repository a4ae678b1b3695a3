"""Task queues of transfers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.transfers.activities import TransferActivities, TransferHousekeeping, build_host_queue
from domain.transfers import names
from services.services import Services
from systems.protocol import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.transfers.job import TransferJob

NAMES: Final = names.QUEUES
WORKFLOWS: Final = (TransferJob,)


def can_serve(queue: str) -> bool:
    """Return whether a worker can serve this queue."""
    return queue in NAMES


def build_queues(services: Services) -> list[TaskQueue]:
    """Return the queues of jobs, of fetching files on any host, and of sending from this host."""
    activities = TransferActivities(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                activities.save_shards,
                activities.save_retry,
                activities.check_agents,
                activities.end_targets,
                activities.cancel_targets,
                activities.finish_job,
                TransferHousekeeping(services).purge,
            ],
            slots=20,
        ),
        TaskQueue(name=names.FILE_QUEUE, workflows=[], activities=[activities.fetch_file], slots=8),
        TaskQueue(
            name=build_host_queue(services.settings.gse),
            workflows=[],
            activities=[activities.send_shard],
            # Each waits for GSE most of the time, and the largest job has 500 of them.
            slots=1_000,
            served_with=names.FILE_QUEUE,
        ),
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Do nothing: transfers have no work beside their queues."""
