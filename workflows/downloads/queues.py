"""Task queues of downloads."""

from __future__ import annotations

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
                steps.probe_and_begin_uploads_or_make_small_file,
                steps.join_ranges_or_plan_books,
                steps.combine_books,
                steps.delete_unfinished,
                steps.record_end_release_slots_and_delete_inline_rows,
                housekeeping.remove_expired_files,
                housekeeping.remove_abandoned_staging_and_old_rows,
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
            name=names.SLOW_FETCH_QUEUE,
            workflows=[],
            activities=[steps.fetch_range],
            slots=services.settings.worker.fetch_slots,
            polls=1,
            served_with=names.FETCH_QUEUE,
        ),
        TaskQueue(
            name=names.RENDER_QUEUE,
            workflows=[],
            activities=[steps.render_segment],
            slots=services.settings.worker.render_slots,
            polls=1,
        ),
    ]


QUEUES: Final = SystemQueues(names=names.QUEUES, workflows=WORKFLOWS, build=build_queues)
