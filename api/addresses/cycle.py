"""The cycle: paused and resumed. What a paused one has begun it brings to its end; what comes in waits in the log."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pydantic import AwareDatetime, Field
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError

from api.addresses.answers import Signed
from api.addresses.room import WAKER, in_force, routes
from api.http.models import Response
from api.http.routes import Access, Call
from domain.addresses.activity_models import CyclePhase
from infra import starts
from stores.addresses import actions
from stores.addresses.actions import Actor
from workflows.addresses import handle as addresses_handle

PATIENCE: Final = timedelta(seconds=2)


class CycleProgress(Response):
    """How far the run is that is under way."""

    phase: CyclePhase
    cycle_id: str = Field(description="the cycle that it is at, as messages name it")
    started_at: AwareDatetime
    cycles: int = Field(description="cycles that this run has brought to their end")
    loaded: int
    done: int
    failed: int
    superseded: int


class CycleAnswer(Response):
    """How the schedule of cycles stands."""

    paused: bool
    note: str = Field(description="who paused or resumed it, and why")
    running: list[str] = Field(description="ids of the workflows that it has started and that have not ended")
    next_runs: list[AwareDatetime] = Field(description="when it begins next; none while it is paused")
    progress: CycleProgress | None = Field(description="of what is running, as far as a worker answers")


@routes.get("/v1/addresses/cycle", access=Access.ADMIN)
async def read_cycle(call: Call) -> CycleAnswer:
    """See whether cycles run."""
    return await _standing(call, await _handle(call))


@routes.post("/v1/addresses/cycle/pause", access=Access.ADMIN)
async def pause(call: Call, body: Signed) -> CycleAnswer:
    """Pause the cycle: one that is under way ends, and no other begins; intake goes on."""
    handle = await _handle(call)
    await handle.pause(note=f"{body.who}: {body.reason}")
    await actions.record_action(call.services.database, "pause", Actor(body.who, body.reason))
    return await _standing(call, handle)


@routes.post("/v1/addresses/cycle/resume", access=Access.ADMIN)
async def resume(call: Call, body: Signed) -> CycleAnswer:
    """Resume a paused cycle; what came meanwhile is taken at once."""
    handle = await _handle(call)
    await handle.unpause(note=f"{body.who}: {body.reason}")
    await actions.record_action(call.services.database, "resume", Actor(body.who, body.reason))
    call.request.app[WAKER].wake()
    return await _standing(call, handle)


async def _handle(call: Call) -> ScheduleHandle:
    """The schedule, made again where the engine has lost it."""
    return await addresses_handle.find_cycle_schedule(call.services.engine, (await in_force(call)).pause_seconds)


async def _standing(call: Call, handle: ScheduleHandle) -> CycleAnswer:
    description = await handle.describe()
    state, running = description.schedule.state, description.info.running_actions
    started = [each for each in running if isinstance(each, ScheduleActionExecutionStartWorkflow)]
    return CycleAnswer(
        paused=state.paused,
        note=state.note or "",
        running=[each.workflow_id for each in started],
        next_runs=starts.list_next_runs(description),
        progress=await _progress(call.services.engine, started[0].workflow_id) if started else None,
    )


async def _progress(engine: Client, workflow_id: str) -> CycleProgress | None:
    """How far a run is; None if it has ended meanwhile, or no worker says so in time."""
    handle = engine.get_workflow_handle(workflow_id)
    try:
        description = await handle.describe()
        status = await addresses_handle.query_cycle(engine, workflow_id, PATIENCE)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return CycleProgress(
        phase=status.phase,
        cycle_id=status.cycle_id,
        started_at=description.start_time,
        **status.totals.model_dump(),
    )
