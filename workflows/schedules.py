"""The schedules of an installation, made and mended when it is prepared."""

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

from domain import housekeeping
from domain.housekeeping import HousekeepingOrder
from infra import schedules, starts
from infra.settings import Settings
from systems.protocol import Names
from workflows.systems import import_schedules, list_names

_EVERY = timedelta(minutes=10)
_OF_ALL_SYSTEMS = "housekeeping"
"""The one schedule that earlier versions had for all systems, on the queue of downloads."""


async def ensure(client: Client, settings: Settings) -> None:
    """Make the schedules, or bring those that exist to what is said here; a paused one stays paused."""
    await schedules.remove(client, _OF_ALL_SYSTEMS)
    for names in list_names():
        await schedules.ensure(client, housekeeping.schedule_id(names.SYSTEM), _housekeeping(names))
    for system in import_schedules().values():
        await system.ensure_schedules(client, settings)


def _housekeeping(names: Names) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            housekeeping.WORKFLOW,
            HousekeepingOrder(activities=names.HOUSEKEEPING),
            id=housekeeping.schedule_id(names.SYSTEM),
            task_queue=names.QUEUE,
            typed_search_attributes=starts.attributes(names.SYSTEM),
            static_summary=f"housekeeping of {names.SYSTEM}",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=_EVERY)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_EVERY),
    )
