"""The schedules: of cycles, one run at a time, which intake triggers; and of checks of logical deletes."""

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
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from domain.addresses import names
from domain.addresses.cycle import CycleOrder
from infra import schedules, temporal
from workflows.addresses.cycle import AddressCycle
from workflows.addresses.upkeep import AddressCheck

_CATCH_UP: Final = timedelta(minutes=2)
_CHECK_CATCH_UP: Final = timedelta(hours=1)


async def ensure(client: Client, pause_seconds: float) -> ScheduleHandle:
    """Make the schedule, or mend it; a paused one stays paused."""
    return await schedules.ensure(client, names.SCHEDULE, _cycles(pause_seconds))


async def find(client: Client, pause_seconds: float) -> ScheduleHandle:
    """The schedule as it is, made again where the engine has lost it."""
    return await schedules.find(client, names.SCHEDULE, _cycles(pause_seconds))


async def ensure_checks(client: Client, hours: float) -> ScheduleHandle:
    """Make the schedule of checks, or mend it; a paused one stays paused."""
    return await schedules.ensure(client, names.CHECKS, _checks(hours))


async def find_checks(client: Client, hours: float) -> ScheduleHandle:
    """The schedule of checks as it is, made again where the engine has lost it."""
    return await schedules.find(client, names.CHECKS, _checks(hours))


async def follow(client: Client, pause_seconds: float, check_hours: float) -> None:
    """Bring both schedules to these intervals, where they have others; a paused one stays paused."""
    for name, wanted in ((names.SCHEDULE, _cycles(pause_seconds)), (names.CHECKS, _checks(check_hours))):
        found = (await (await schedules.find(client, name, wanted)).describe()).schedule.spec.intervals
        if [each.every for each in found] != [each.every for each in wanted.spec.intervals]:
            await schedules.ensure(client, name, wanted)


def _cycles(pause_seconds: float) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            AddressCycle.run,
            CycleOrder(),
            id=names.SCHEDULE,
            task_queue=names.QUEUE,
            typed_search_attributes=TypedSearchAttributes([SearchAttributePair(temporal.ROOM, names.SYSTEM)]),
            static_summary="changes of addresses",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=pause_seconds))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )


def _checks(hours: float) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            AddressCheck.run,
            id=names.CHECKS,
            task_queue=names.QUEUE,
            typed_search_attributes=TypedSearchAttributes([SearchAttributePair(temporal.ROOM, names.SYSTEM)]),
            static_summary="logical deletes of addresses",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(hours=hours))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CHECK_CATCH_UP),
    )
