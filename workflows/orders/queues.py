"""Task queues of orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.orders import platform_workers
from activities.orders.activities import BackfillActivities, OrderActivities
from activities.orders.watch import OrderHousekeeping, OverdueScanActivities, PlatformPresenceActivities
from domain.orders import names
from services.services import Services
from systems.protocol import SystemQueues, TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.orders.alarms import OrderWatchWorkflow
from workflows.orders.backfill import OrderBackfillWorkflow, OrderReportWorkflow
from workflows.orders.cycle import OrderCycleWorkflow
from workflows.orders.slice import OrderSliceWorkflow

WORKFLOWS: Final = (
    OrderCycleWorkflow,
    OrderSliceWorkflow,
    OrderBackfillWorkflow,
    OrderReportWorkflow,
    OrderWatchWorkflow,
)


def build_queues(services: Services) -> list[TaskQueue]:
    """Build the queue of workflows and database activities; `platform_workers` builds those of platforms."""
    steps, watching, backfilling = (
        OrderActivities(services),
        PlatformPresenceActivities(services),
        BackfillActivities(services),
    )
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                steps.claim_slices,
                steps.load_settings,
                steps.record_failed_slice_or_sweep,
                steps.record_clock_failure,
                steps.record_skew_alarm,
                steps.record_refused_credentials,
                backfilling.insert_backfill_if_new,
                backfilling.save_progress_and_list_next,
                backfilling.close_backfill_and_alarm_if_failed,
                watching.list_platforms,
                watching.record_unserved_and_alarm_newly_unserved,
                OverdueScanActivities(services).report_stale_slices_and_close_lost_backfills,
                OrderHousekeeping(services).purge_copies_pages_and_answers,
            ],
            slots=20,
        )
    ]


async def run_platform_workers_and_update_gauges(
    services: Services, queues: Sequence[str], stop: asyncio.Event
) -> None:
    """Serve the queues of platforms, which appear at run time, and update the gauges of platforms."""
    async with asyncio.TaskGroup() as group:
        group.create_task(platform_workers.serve_platforms(services, queues, stop))
        group.create_task(platform_workers.update_gauges_until_stopped(services, queues, stop))


QUEUES: Final = SystemQueues(
    names=(*names.QUEUES, names.PLATFORM_QUEUES),
    workflows=WORKFLOWS,
    build=build_queues,
    run_background=run_platform_workers_and_update_gauges,
    is_named_later=lambda queue: names.parse_platform_of_slice_queue(queue) is not None,
)
