"""Schedules: made at every start, and mended where they are already there."""

from __future__ import annotations

from temporalio.client import (
    Client,
    Schedule,
    ScheduleAlreadyRunningError,
    ScheduleHandle,
    ScheduleUpdate,
    ScheduleUpdateInput,
)


async def ensure(client: Client, name: str, schedule: Schedule) -> ScheduleHandle:
    """Make a schedule, or make the one of this name alike; a paused one stays paused."""
    try:
        return await client.create_schedule(name, schedule)
    except ScheduleAlreadyRunningError:
        handle = client.get_schedule_handle(name)
        await handle.update(lambda found: _updated(found, schedule))
        return handle


def _updated(found: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate:
    wanted.state = found.description.schedule.state
    return ScheduleUpdate(schedule=wanted)
