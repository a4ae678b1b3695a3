"""Schedules: made at every start, and mended where they are already there; found without a change at other times."""

from __future__ import annotations

from datetime import datetime

from temporalio.client import (
    Client,
    Schedule,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode


async def ensure(client: Client, name: str, schedule: Schedule) -> ScheduleHandle:
    """Make a schedule, or make the one of this name alike; a paused one stays paused."""
    try:
        return await client.create_schedule(name, schedule)
    except ScheduleAlreadyRunningError:
        handle = client.get_schedule_handle(name)
        await handle.update(lambda found: _updated(found, schedule))
        return handle


async def find(client: Client, name: str, schedule: Schedule) -> ScheduleHandle:
    """The schedule of this name as it is, made only where the engine has lost it.

    To mend one is to write its whole state as it was read a moment ago, which undoes a pause that came meanwhile.
    """
    handle = client.get_schedule_handle(name)
    try:
        await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return await ensure(client, name, schedule)
    return handle


async def remove(client: Client, name: str) -> None:
    """Remove a schedule; none is there afterwards, whether or not there was one."""
    try:
        await client.get_schedule_handle(name).delete()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def is_paused(client: Client, name: str) -> bool:
    """Whether a schedule is paused; one that is not there is not."""
    try:
        return (await client.get_schedule_handle(name).describe()).schedule.state.paused
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False


def next_runs(description: ScheduleDescription) -> list[datetime]:
    """When a schedule runs next; the engine names times of a paused one, too, at which it does nothing."""
    return [] if description.schedule.state.paused else list(description.info.next_action_times)


def _updated(found: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate:
    wanted.state = found.description.schedule.state
    return ScheduleUpdate(schedule=wanted)
