"""The cycle: paused and resumed. What a paused one has begun it brings to its end; what comes in waits in the log."""

from __future__ import annotations

from pydantic import AwareDatetime, Field
from temporalio.client import ScheduleActionExecutionStartWorkflow, ScheduleHandle

from activities.addresses import steering
from activities.addresses.steering import By
from api.addresses.answers import Signed
from api.addresses.room import WAKER, routes
from api.models import Answer
from api.routes import Access, Call
from workflows.addresses import schedules


class CycleAnswer(Answer):
    """How the schedule of cycles stands."""

    paused: bool
    note: str = Field(description="who paused or resumed it, and why")
    running: list[str] = Field(description="ids of the workflows that it has started and that have not ended")
    next_runs: list[AwareDatetime]


@routes.get("/v1/addresses/cycle", access=Access.ADMIN)
async def read_cycle(call: Call) -> CycleAnswer:
    """See whether cycles run."""
    return await _standing(await _handle(call))


@routes.post("/v1/addresses/cycle/pause", access=Access.ADMIN)
async def pause(call: Call, body: Signed) -> CycleAnswer:
    """Pause the cycle: one that is under way ends, and no other begins; intake goes on."""
    handle = await _handle(call)
    await handle.pause(note=f"{body.who}: {body.reason}")
    await steering.note(call.services.database, "pause", By(body.who, body.reason))
    return await _standing(handle)


@routes.post("/v1/addresses/cycle/resume", access=Access.ADMIN)
async def resume(call: Call, body: Signed) -> CycleAnswer:
    """Resume a paused cycle; what came meanwhile is taken at once."""
    handle = await _handle(call)
    await handle.unpause(note=f"{body.who}: {body.reason}")
    await steering.note(call.services.database, "resume", By(body.who, body.reason))
    call.request.app[WAKER].wake()
    return await _standing(handle)


async def _handle(call: Call) -> ScheduleHandle:
    """The schedule, made again where the engine has lost it."""
    return await schedules.ensure(call.services.engine, call.services.settings.addresses.pause_seconds)


async def _standing(handle: ScheduleHandle) -> CycleAnswer:
    description = await handle.describe()
    state, running = description.schedule.state, description.info.running_actions
    return CycleAnswer(
        paused=state.paused,
        note=state.note or "",
        running=[each.workflow_id for each in running if isinstance(each, ScheduleActionExecutionStartWorkflow)],
        next_runs=description.info.next_action_times,
    )
