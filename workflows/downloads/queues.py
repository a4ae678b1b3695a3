"""Task queues of downloads."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import Final

from activities.downloads.activities import DownloadActivities, DownloadHousekeeping
from domain.downloads import names
from services.services import Services
from systems.protocol import SystemQueues, TaskQueue
from workflows.downloads.download import DownloadWorkflow
from workflows.housekeeping import HousekeepingWorkflow

WORKFLOWS: Final = (DownloadWorkflow,)


def build_queues(services: Services) -> list[TaskQueue]:
    """Build separate queues for workflows, fetching and rendering, so that slow or heavy work blocks nothing else."""
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
            # One poll at a time spreads the ranges of a download over all workers.
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
    """Load Arrow in workers that fetch, so that the first download does not wait for it."""
    if names.FETCH_QUEUE in queues:
        importlib.import_module("pyarrow.compute")


QUEUES: Final = SystemQueues(names=names.QUEUES, workflows=WORKFLOWS, build=build_queues, run_background=run_background)
