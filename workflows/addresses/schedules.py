"""The schedules: of cycles, one run at a time, which intake triggers; and of checks of logical deletes."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from domain.addresses import places
from domain.addresses.cycle import CycleOrder
from infra import temporal
from workflows.addresses.cycle import AddressCycle
from workflows.addresses.intake import ROOM
from workflows.addresses.upkeep import AddressCheck

_CATCH_UP: Final = timedelta(minutes=2)
_CHECK_CATCH_UP: Final = timedelta(hours=1)


async def ensure(client: Client, pause_seconds: float) -> ScheduleHandle:
    """Make the schedule, or mend it; a paused one stays paused."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            AddressCycle.run,
            CycleOrder(),
            id=places.SCHEDULE,
            task_queue=places.QUEUE,
            typed_search_attributes=TypedSearchAttributes([SearchAttributePair(temporal.ROOM, ROOM)]),
            static_summary="changes of addresses",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=pause_seconds))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )
    return await _made(client, places.SCHEDULE, schedule)


async def ensure_checks(client: Client, hours: float) -> ScheduleHandle:
    """Make the schedule of checks, or mend it; a paused one stays paused."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            AddressCheck.run,
            id=places.CHECKS,
            task_queue=places.QUEUE,
            typed_search_attributes=TypedSearchAttributes([SearchAttributePair(temporal.ROOM, ROOM)]),
            static_summary="logical deletes of addresses",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(hours=hours))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CHECK_CATCH_UP),
    )
    return await _made(client, places.CHECKS, schedule)


async def _made(client: Client, id_: str, schedule: Schedule) -> ScheduleHandle:
    try:
        return await client.create_schedule(id_, schedule)
    except ScheduleAlreadyRunningError:
        handle = client.get_schedule_handle(id_)
        await handle.update(lambda found: _updated(found, schedule))
        return handle


def _updated(found: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate:
    wanted.state = found.description.schedule.state
    return ScheduleUpdate(schedule=wanted)
