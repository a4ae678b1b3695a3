"""The schedules of the room: one for each platform, made when it is, and one for the watch."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)

from domain.orders import names
from domain.orders.steps import CycleOrder, WatchOrder
from infra import schedules
from workflows.orders.attributes import attributes
from workflows.orders.cycle import OrderCycle
from workflows.orders.watch import OrderWatch

CYCLE_SECONDS: Final = 60
WATCH_SECONDS: Final = 20
_CATCH_UP: Final = timedelta(minutes=2)


async def ensure_platform(client: Client, platform: str, project_id: str) -> ScheduleHandle:
    """Make a platform's schedule, or mend it; a paused one stays paused."""
    return await schedules.ensure(client, names.schedule_id(platform), _cycles(platform, project_id))


async def find_platform(client: Client, platform: str, project_id: str) -> ScheduleHandle:
    """A platform's schedule as it is, made again where the engine has lost it."""
    return await schedules.find(client, names.schedule_id(platform), _cycles(platform, project_id))


async def ensure_watch(client: Client) -> ScheduleHandle:
    """Make the schedule of the watch, or mend it."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(OrderWatch.run, WatchOrder(), id=names.WATCH, task_queue=names.QUEUE),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=WATCH_SECONDS))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(seconds=WATCH_SECONDS)),
    )
    return await schedules.ensure(client, names.WATCH, schedule)


def _cycles(platform: str, project_id: str) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            OrderCycle.run,
            CycleOrder(platform=platform, heeds_pause=True),
            id=names.schedule_id(platform),
            task_queue=names.QUEUE,
            typed_search_attributes=attributes(project_id),
            static_summary=f"orders of {platform}",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=CYCLE_SECONDS))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )
