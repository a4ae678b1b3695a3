"""Types: registering them, changing how their tasks are scheduled, and giving out none for a while."""

from __future__ import annotations

import asyncio

from api.http.routes import Access, Call
from api.tasks import answers
from api.tasks.answers import Types
from api.tasks.calls import Over
from api.tasks.envelope import TYPE_AMBIGUOUS, TYPE_UNKNOWN, Envelope
from api.tasks.requests import OfType, Register
from api.tasks.room import Desk, desk, routes
from api.tasks.types import TaskType
from domain.faults import Conflict, Missing

_UNKNOWN = {TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict}


@routes.post("/v1/register_task_type", access=Access.PROJECT)
async def register_task_type(call: Call, body: Register) -> Envelope:
    """Register a type of tasks.

    Doing it again changes the fields that are given, at once; the others stay. Names are each project's own: another
    one may have a type of the same name.
    """
    return await _register(call, body)


@routes.post("/v1/register_task", access=Access.PROJECT)
async def register_task(call: Call, body: Register) -> Envelope:
    """Register a type of tasks; the same as `register_task_type`."""
    return await _register(call, body)


@routes.get("/v1/get_task_schedule_cfg_list", access=Access.PROJECT)
async def get_task_schedule_cfg_list(call: Call) -> Types:
    """List the project's types, how their tasks are scheduled, and which lanes they are in."""
    kinds = await desk(call).types.owned(call.project_id)
    return Types(task_schedule_cfg_list=[answers.of_type(kind) for kind in kinds])


@routes.post("/v1/pause_task_type", access=Access.PROJECTS, problems=_UNKNOWN)
async def pause(call: Call, body: OfType) -> Envelope:
    """Give out no tasks of a type any more; all else goes on, and what is held may be set."""
    return await _pause(call, body, paused=True)


@routes.post("/v1/resume_task_type", access=Access.PROJECTS, problems=_UNKNOWN)
async def resume(call: Call, body: OfType) -> Envelope:
    """Give out tasks of a type again."""
    return await _pause(call, body, paused=False)


async def _register(call: Call, body: Register) -> Envelope:
    here = desk(call)
    kind = await here.types.register(call.project_id, body.task_type_data)
    await here.open((kind.type, kind.end_pos))
    await _teach(here, kind)
    return Envelope()


async def _pause(call: Call, body: OfType, *, paused: bool) -> Envelope:
    here = desk(call)
    await _teach(here, await here.types.pause(call.scope, body.task_type, paused=paused))
    return Envelope()


async def _teach(here: Desk, kind: TaskType) -> None:
    """See that all lanes of a type know its rules when this is answered."""

    async def teach(pos: int) -> None:
        try:
            await here.lanes.teach((kind.type, pos), kind.rules)
        except Over:
            here.heads.forget(kind.type, pos)

    await asyncio.gather(*map(teach, await here.heads.open_lanes(kind.type)))
