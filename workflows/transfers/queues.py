"""Task queues of transfers."""

from __future__ import annotations

from typing import Final

from activities.transfers.activities import TransferActivities, TransferHousekeeping, build_host_queue_name
from domain.transfers import names
from services.services import Services
from systems.protocol import SystemQueues, TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.transfers.job import TransferJob

WORKFLOWS: Final = (TransferJob,)


def build_queues(services: Services) -> list[TaskQueue]:
    """Return the queues of jobs, of fetching files on any host, and of sending from this host."""
    activities = TransferActivities(services)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                activities.insert_missing_shards,
                activities.save_retried_targets,
                activities.fail_targets_without_agent,
                activities.end_unfinished_targets_of_shards,
                activities.save_cancellation_of_project_targets,
                activities.mark_job_ended_and_get_outcome,
                TransferHousekeeping(services).purge_expired_jobs_and_cancellations,
            ],
            slots=20,
        ),
        TaskQueue(name=names.FILE_QUEUE, workflows=[], activities=[activities.fetch_file_into_host_cache], slots=8),
        TaskQueue(
            name=build_host_queue_name(services.settings.gse),
            workflows=[],
            activities=[activities.send_shard],
            # Each waits for GSE most of the time, and the largest job has 500 of them.
            slots=1_000,
            served_with=names.FILE_QUEUE,
        ),
    ]


QUEUES: Final = SystemQueues(names=names.QUEUES, workflows=WORKFLOWS, build=build_queues)
