"""Schedules: pause a platform, resume it, let it claim at once, read a time again."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, Self

from pydantic import AwareDatetime, Field, model_validator
from temporalio.client import ScheduleBackfill, ScheduleHandle, ScheduleOverlapPolicy

from activities.orders import configuration
from api.models import Answer, Request
from api.moments import BodyMoment
from api.orders.room import PlatformPath, routes
from api.routes import Access, Call
from domain.faults import Invalid, Missing
from infra.tables.orders import OrderPlatform
from workflows.orders import schedules

BACKFILL_MAX: Final = timedelta(hours=12)


class Pause(Request):
    """Why a platform is paused."""

    note: str = Field(default="", max_length=500, description="shown in the Temporal Web UI")


class Times(Request):
    """A time to read again."""

    start: BodyMoment
    end: BodyMoment

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not timedelta(0) < self.end - self.start <= BACKFILL_MAX:
            raise ValueError(
                f"start {self.start.isoformat()} and end {self.end.isoformat()} are {self.end - self.start} apart; "
                f"the end must be later, by at most {BACKFILL_MAX.total_seconds() / 3600:.0f} hours."
            )
        return self


class ScheduleAnswer(Answer):
    """How a platform's schedule stands."""

    platform: str
    paused: bool
    note: str
    next_runs: list[AwareDatetime]


@routes.post("/v1/platforms/{platform}/pause", access=Access.ADMIN, problems={"not_found": Missing})
async def pause(call: Call, path: PlatformPath, body: Pause) -> ScheduleAnswer:
    """Pause a platform: nothing new is claimed; slices that are claimed are read to their end."""
    handle = await _handle(call, path)
    await handle.pause(note=body.note or "paused through the API")
    return await _standing(path, handle)


@routes.post("/v1/platforms/{platform}/resume", access=Access.ADMIN, problems={"not_found": Missing})
async def resume(call: Call, path: PlatformPath) -> ScheduleAnswer:
    """Resume a paused platform; what settled meanwhile is claimed by the next run."""
    handle = await _handle(call, path)
    await handle.unpause(note="resumed through the API")
    return await _standing(path, handle)


@routes.post(
    "/v1/platforms/{platform}/trigger",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing},
)
async def trigger(call: Call, path: PlatformPath) -> ScheduleAnswer:
    """Let a platform claim what has settled now, unless a run is under way, which does so anyway."""
    handle = await _handle(call, path)
    await handle.trigger()
    return await _standing(path, handle)


@routes.post(
    "/v1/platforms/{platform}/backfill",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "window_invalid": Invalid},
)
async def backfill(call: Call, path: PlatformPath, body: Times) -> ScheduleAnswer:
    """Read the complete slices of a time again; no mark moves.

    The same as a backfill of the schedule in the Temporal Web UI.
    """
    handle = await _handle(call, path)
    # The engine takes the start out, and runs only on the minutes of the schedule: a shorter time has none.
    every = timedelta(seconds=schedules.CYCLE_SECONDS)
    start, end = _on_the_grid(body.start, every), body.end
    await handle.backfill(
        ScheduleBackfill(start_at=start - timedelta(seconds=1), end_at=end, overlap=ScheduleOverlapPolicy.ALLOW_ALL)
    )
    return await _standing(path, handle)


def _on_the_grid(moment: datetime, every: timedelta) -> datetime:
    """The last run of the schedule at or before a moment."""
    seconds = every.total_seconds()
    return moment - timedelta(seconds=moment.timestamp() % seconds)


async def _handle(call: Call, path: PlatformPath) -> ScheduleHandle:
    """A platform's schedule, made again where the engine has lost it."""
    async with call.services.database.session() as session:
        row = await session.get(OrderPlatform, path.platform)
        if row is None:
            raise configuration.unknown(path.platform)
    return await schedules.find_platform(call.services.engine, row.platform, row.project_id)


async def _standing(path: PlatformPath, handle: ScheduleHandle) -> ScheduleAnswer:
    description = await handle.describe()
    state = description.schedule.state
    return ScheduleAnswer(
        platform=path.platform,
        paused=state.paused,
        note=state.note or "",
        next_runs=description.info.next_action_times,
    )
