"""Task queues of downloads."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import Final

from activities.downloads.activities import DownloadActivities
from activities.downloads.housekeeping import DownloadHousekeeping
from domain.downloads import names
from services.services import Services
from systems.protocol import TaskQueue
from workflows.downloads.download import DownloadWorkflow
from workflows.housekeeping import HousekeepingWorkflow

NAMES: Final = names.QUEUES
WORKFLOWS: Final = (DownloadWorkflow,)


def can_serve(queue: str) -> bool:
    """Whether a worker can be told to serve this queue."""
    return queue in NAMES


def build_queues(services: Services) -> list[TaskQueue]:
    """Steering, fetching and rendering apart: what is slow or heavy never holds up the rest."""
    steps, housekeeping = DownloadActivities(services), DownloadHousekeeping(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                steps.record,
                steps.probe,
                steps.assemble,
                steps.bind,
                steps.discard,
                steps.finish,
                housekeeping.expire,
                housekeeping.sweep,
            ],
            slots=50,
        ),
        TaskQueue(
            name=names.FETCH_QUEUE,
            workflows=[],
            activities=[steps.fetch_range],
            slots=services.settings.worker.fetch_slots,
            # One poll at a time: the ranges of a download come to all workers in turn, not all of them to one.
            polls=1,
        ),
        TaskQueue(
            name=names.RENDER_QUEUE,
            workflows=[],
            activities=[steps.render],
            slots=services.settings.worker.render_slots,
            polls=1,
        ),
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Load Arrow where ranges are fetched: the first download should not wait for that."""
    if names.FETCH_QUEUE in queues:
        importlib.import_module("pyarrow.compute")
