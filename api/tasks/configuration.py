"""Routes that register types, change their configuration, and pause and resume them."""

from __future__ import annotations

import asyncio

from api.http.routes import Access, Call
from api.tasks import responses
from api.tasks.context import TaskContext, get_context, routes
from api.tasks.requests import RegisterTaskTypeRequest, TaskTypeQuery
from api.tasks.responses import ResponseEnvelope, TaskTypesResponse
from api.tasks.storage import TYPE_AMBIGUOUS, TYPE_UNKNOWN, CachedTaskType
from domain.faults import Conflict, Missing
from workflows.tasks.handle import LaneClosed

_PROBLEMS = {TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict}


@routes.post("/v1/register_task_type", access=Access.PROJECT)
async def register_task_type(call: Call, body: RegisterTaskTypeRequest) -> ResponseEnvelope:
    """Register a type of tasks.

    Registering it again changes the fields that are given, at once; the others keep their values. Names belong to the
    project: another one may have a type of the same name.
    """
    return await _register(call, body)


@routes.post("/v1/register_task", access=Access.PROJECT)
async def register_task(call: Call, body: RegisterTaskTypeRequest) -> ResponseEnvelope:
    """Register a type of tasks; the same as `register_task_type`."""
    return await _register(call, body)


@routes.get("/v1/get_task_schedule_cfg_list", access=Access.PROJECT)
async def get_task_schedule_cfg_list(call: Call) -> TaskTypesResponse:
    """List the project's types with their configuration and the positions of their lanes."""
    types = await get_context(call).types.list_of_project(call.project_id)
    return TaskTypesResponse(task_schedule_cfg_list=[responses.build_task_type(each) for each in types])


@routes.post("/v1/pause_task_type", access=Access.PROJECTS, problems=_PROBLEMS)
async def pause_task_type(call: Call, body: TaskTypeQuery) -> ResponseEnvelope:
    """Pause a type: holds return none of its tasks; all else goes on, and held tasks may be set."""
    return await _set_paused(call, body, paused=True)


@routes.post("/v1/resume_task_type", access=Access.PROJECTS, problems=_PROBLEMS)
async def resume_task_type(call: Call, body: TaskTypeQuery) -> ResponseEnvelope:
    """Resume a paused type."""
    return await _set_paused(call, body, paused=False)


async def _register(call: Call, body: RegisterTaskTypeRequest) -> ResponseEnvelope:
    context = get_context(call)
    task_type = await context.types.register(call.project_id, body.task_type_data)
    await context.open_lane((task_type.type, task_type.end_pos))
    await _send_rules(context, task_type)
    return ResponseEnvelope()


async def _set_paused(call: Call, body: TaskTypeQuery, *, paused: bool) -> ResponseEnvelope:
    context = get_context(call)
    await _send_rules(context, await context.types.set_paused(call.scope, body.task_type, paused=paused))
    return ResponseEnvelope()


async def _send_rules(context: TaskContext, task_type: CachedTaskType) -> None:
    """Return when all lanes of a type apply its current rules."""

    async def send(pos: int) -> None:
        lane = (task_type.type, pos)
        try:
            await context.lanes.send_rules(lane, task_type.rules)
        except LaneClosed:
            context.heads.remove(lane)

    await asyncio.gather(*map(send, await context.heads.list_open_lanes(task_type.type)))
