"""The schedules of the house, made and mended when an installation is prepared."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)

from domain.downloads import names as downloads_names
from infra import schedules
from infra.settings import Settings
from workflows.addresses import handle as addresses
from workflows.orders import handle as orders

HOUSEKEEPING = "housekeeping"


async def ensure(client: Client, settings: Settings) -> None:
    """Make the schedules, or bring those that exist to what is said here; a paused one stays paused."""
    await schedules.ensure(client, HOUSEKEEPING, _housekeeping())
    await orders.ensure_watch(client)
    await addresses.ensure_cycles(client, settings.addresses.pause_seconds)
    await addresses.ensure_checks(client, settings.addresses.check_hours)


def _housekeeping() -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            downloads_names.HOUSEKEEPING_WORKFLOW, id=HOUSEKEEPING, task_queue=downloads_names.QUEUE
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(minutes=10))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=10)),
    )
