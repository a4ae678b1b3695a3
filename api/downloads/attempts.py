"""Attempts: which steps the last run of a download took, how often each was tried, and what went wrong."""

from __future__ import annotations

from pydantic import AwareDatetime, Field
from temporalio.service import RPCError, RPCStatusCode

from api.downloads.room import TaskPath, board, routes
from api.http.models import Request, Response
from api.http.routes import Access, Call
from domain.downloads import names
from domain.faults import FaultRecord
from infra import history
from infra.history import ActivityState

STEP_PREFIX = "download_"


class HowMany(Request):
    """How far to look back."""

    limit: int = Field(default=50, ge=1, le=200, description="steps at most")


class ShownStep(Response):
    """One step with all its attempts."""

    step: str = Field(examples=["probe", "fetch_range", "assemble", "render", "bind"])
    summary: str = Field(description="what it is about, e.g. which pages; empty where the step says it")
    state: ActivityState = Field(description="`waiting` for a worker, or for its next attempt")
    attempts: int = Field(description="how often it was begun")
    scheduled_at: AwareDatetime
    ended_at: AwareDatetime | None
    next_attempt_at: AwareDatetime | None
    fault: FaultRecord | None = Field(description="why the last attempt that failed did")


class Attempts(Response):
    """The steps of the last run."""

    steps: list[ShownStep] = Field(description="newest first; none once the engine has forgotten the run")
    more: bool = Field(description="whether there were earlier ones")


@routes.get("/v1/downloads/{task_id}/attempts", access=Access.PROJECT)
async def read_attempts(call: Call, path: TaskPath, query: HowMany) -> Attempts:
    """Show the steps of a download and their attempts.

    Newest first, of the last run: a retry that comes late is a run of its own. Pages that a step asks for again by
    itself are not told one by one. The engine forgets them days after the end.
    """
    await board(call).read(call.project_id, path.task_id)
    handle = call.services.engine.get_workflow_handle(names.workflow_id(call.project_id, path.task_id))
    try:
        found, is_all = await history.list_activities(call.services.engine, await handle.describe(), query.limit)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return Attempts(steps=[], more=False)
    return Attempts(steps=[_show(step) for step in found], more=not is_all)


def _show(step: history.ActivityRecord) -> ShownStep:
    return ShownStep(
        step=step.activity.removeprefix(STEP_PREFIX),
        summary=step.summary,
        state=step.state,
        attempts=step.attempts,
        scheduled_at=step.scheduled_at,
        ended_at=step.ended_at,
        next_attempt_at=step.next_attempt_at,
        fault=step.fault,
    )
