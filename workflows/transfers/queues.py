"""Task queues of transfers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.transfers.activities import TransferActivities, TransferHousekeeping, host_queue
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
    """Jobs; files, by any host; and what has to happen on the host where the file lies."""
    steps = TransferActivities(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                steps.freeze,
                steps.freeze_retry,
                steps.look,
                steps.settle,
                steps.cancel,
                steps.finish,
                TransferHousekeeping(services).purge,
            ],
            slots=20,
        ),
        TaskQueue(name=names.FILE_QUEUE, workflows=[], activities=[steps.fetch], slots=8),
        TaskQueue(
            name=host_queue(services.settings.gse),
            workflows=[],
            activities=[steps.ship],
            # Each waits for GSE most of the time, and the largest job has 500 of them.
            slots=1_000,
            served_with=names.FILE_QUEUE,
        ),
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Run nothing beside the queues."""
