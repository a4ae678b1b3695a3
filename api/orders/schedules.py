"""Schedules: pause a platform, resume it, let it claim at once."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import AwareDatetime, Field
from temporalio.client import ScheduleHandle

from api.http.models import Request, Response
from api.http.routes import Access, Call
from api.orders.room import PlatformPath, routes
from domain.faults import Conflict, Missing
from infra import starts
from stores.orders import platforms
from workflows.orders import handle as orders_handle


class Pause(Request):
    """Why a platform is paused."""

    note: str = Field(default="", max_length=500, description="shown in the Temporal Web UI")


class ScheduleAnswer(Response):
    """How a platform's schedule stands."""

    platform: str
    paused: bool
    note: str
    next_runs: list[AwareDatetime] = Field(description="when it claims next; none while it is paused")


@routes.post("/v1/platforms/{platform}/pause", access=Access.ADMIN, body_optional=True, problems={"not_found": Missing})
async def pause(call: Call, path: PlatformPath, body: Pause) -> ScheduleAnswer:
    """Pause a platform, its running cycle too: no slice is claimed or begun; those that are being read are finished.

    The same as pausing its schedule in the Temporal Web UI.
    """
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
    problems={"not_found": Missing, "platform_paused": Conflict},
)
async def trigger(call: Call, path: PlatformPath) -> ScheduleAnswer:
    """Let a platform claim what has settled now, unless a run is under way, which does so anyway."""
    handle = await _handle(call, path)
    standing = await _standing(path, handle)
    if standing.paused:
        raise Conflict("platform_paused", f"Platform {path.platform} is paused and claims nothing.", "Resume it.")
    await handle.trigger()
    return standing


async def _handle(call: Call, path: PlatformPath) -> ScheduleHandle:
    """A platform's schedule, made again where the engine has lost it."""
    async with call.services.database.session() as session:
        row = await platforms.require(session, path.platform)
    return await orders_handle.find_platform(call.services.engine, row.platform, row.project_id)


async def _standing(path: PlatformPath, handle: ScheduleHandle) -> ScheduleAnswer:
    description = await handle.describe()
    state = description.schedule.state
    return ScheduleAnswer(
        platform=path.platform,
        paused=state.paused,
        note=state.note or "",
        next_runs=starts.list_next_runs(description),
    )
