"""Asking: where a task stands, and where a whole job does, with its targets page by page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field

from api.models import Request
from api.routes import Access, Call
from api.transfers.answers import JobAnswer, TargetAnswer, TaskAnswer, TaskStanding, Trouble, summarised
from api.transfers.joins import WINDOWS_MAX
from api.transfers.lookup import EndedJob, is_over
from api.transfers.room import JobPath, TaskPath, desk, missing, routes
from domain.faults import Gone, Missing
from domain.transfers import ids
from domain.transfers.gse import meaning
from domain.transfers.ids import Job
from domain.transfers.request import AGENT_ID_MAX_CHARACTERS
from domain.transfers.states import Reason, State
from stores.transfers import jobs, targets
from stores.transfers.jobs import EndCount
from stores.transfers.targets import TargetFilter, TargetRow

EXPIRED = "transfer_expired"


class Wanted(Request):
    """Which targets of a job."""

    status: State | None = Field(default=None, description="only targets that stand there")
    reason: Reason | None = Field(default=None, description="only targets that ended for this reason")
    code: int | None = Field(default=None, ge=-(2**31), le=2**31 - 1, description="only targets with this code of GSE")
    target_agent_id: str | None = Field(default=None, max_length=AGENT_ID_MAX_CHARACTERS, description="only this host")
    limit: int = Field(default=100, ge=1, le=1_000, description="how many at most")
    cursor: str | None = Field(
        default=None, pattern=r"^(0|[1-9][0-9]{0,18})$", description="`next_cursor` of the page before"
    )


@routes.get(
    "/v1/transfers/jobs/{job_id}",
    access=Access.PROJECTS,
    slashes="job_id",
    problems={"not_found": Missing, EXPIRED: Gone},
)
async def read_job(call: Call, path: JobPath, query: Wanted) -> JobAnswer:
    """Tell where a job stands.

    It counts your project's targets only. Half an hour after the job's end its state is forgotten; for seven days more
    the answer is that it was there.
    """
    job = ids.read_job(path.job_id)
    if job is None:
        raise _no_job()
    ended = await desk(call).lookup.job(path.job_id, call.scope)
    if ended is None:
        return await _collecting(call, job)
    if is_over(ended.row.expires_at):
        raise gone("job")
    return await _with_targets(call, job, ended, query)


@routes.get(
    "/v1/transfers/{task_id}",
    access=Access.PROJECT,
    slashes="task_id",
    problems={"not_found": Missing, EXPIRED: Gone},
)
async def read(call: Call, path: TaskPath) -> TaskAnswer:
    """Tell where a task stands.

    Ask as often as you like; while its window is open it is Pending. Half an hour after its job's end the task's state
    is forgotten.
    """
    task = desk(call).task(call, path.task_id)
    return task_answer(call, path.task_id, task.job, await stand(call, task.job, task.target_key))


def task_answer(call: Call, task_id: str, job: Job, standing: TaskStanding) -> TaskAnswer:
    """What is told of a task whose target stands so."""
    closes_at = datetime.fromtimestamp(ids.closes_at(job.bucket, desk(call).window_seconds), UTC)
    return TaskAnswer(task_id=task_id, job_id=str(job), window_closes_at=closes_at, **standing.model_dump())


async def stand(call: Call, job: Job, key: int) -> TaskStanding:
    """Where a target stands that has joined: its id proves that.

    Raises:
        Gone: It was forgotten.
    """
    here = desk(call)
    windows_ahead = job.bucket - ids.bucket_at(time.time(), here.window_seconds)
    # Further ahead lie only jobs from before somebody changed the length of windows.
    if 0 <= windows_ahead <= WINDOWS_MAX:
        return await _pending(call, job, key)
    target = await here.lookup.target(str(job), key, call.project_id)
    if target is None:
        if await here.lookup.is_running(str(job)):
            return await _pending(call, job, key)
        # It may have been written down, and its job may even have ended, between the two questions.
        target = await here.lookup.target(str(job), key, call.project_id)
    if target is None or is_over(target.expires_at):
        raise gone("task")
    return TaskStanding(**_describe_target(target), gse_task_id=target.gse_task_id)


async def _pending(call: Call, job: Job, key: int) -> TaskStanding:
    cancelling = await desk(call).lookup.is_cancelled(str(job), key, call.project_id)
    return TaskStanding(status=State.PENDING, cancelling=cancelling)


def gone(what: str) -> Gone:
    """What is told of a task or a job whose time is over."""
    return Gone(EXPIRED, f"This {what} ended too long ago; its state is kept for a while only.", "Ask sooner.")


async def _collecting(call: Call, job: Job) -> JobAnswer:
    """A job that nothing is written of yet, or nothing any more."""
    settings = call.services.settings.transfers
    closes_at = datetime.fromtimestamp(ids.closes_at(job.bucket, settings.window_seconds), UTC)
    deadline_at = closes_at + timedelta(seconds=settings.timeout_seconds)
    count = await desk(call).lookup.joined(str(job), call.scope)
    if not count:
        raise _no_job()
    known = summarised(job, {State.PENDING: count}, closes_at, deadline_at)
    return JobAnswer(**known, cancelling=await _is_cancelled(call, job), targets=[])


async def _with_targets(call: Call, job: Job, ended: EndedJob, query: Wanted) -> JobAnswer:
    database, row = call.services.database, ended.row
    wanted = TargetFilter(query.status, query.reason, query.code, query.target_agent_id)
    found = await targets.list_page(database, row.id, call.scope, wanted, int(query.cursor or 0), query.limit)
    shown = found[: query.limit]
    known = summarised(job, ended.counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of)
    is_cancelled = await _is_cancelled(call, job)
    return JobAnswer(
        **known,
        cancelling=is_cancelled and not known["status"].final,
        retries=await jobs.list_retries(database, str(job), call.scope),
        troubles=_troubles(ended.ends),
        targets=[TargetAnswer(**_describe_target(each)) for each in shown],
        next_cursor=str(shown[-1].key) if len(found) > len(shown) else None,
    )


async def _is_cancelled(call: Call, job: Job) -> bool:
    return await targets.is_job_cancelled(call.services.database, str(job), call.scope)


def _troubles(ends: Sequence[EndCount]) -> list[Trouble]:
    found = [
        Trouble(
            status=each.state,
            reason=each.reason,
            code=each.code,
            meaning=each.message if each.code is None or each.reason is not Reason.GSE_CODE else meaning(each.code),
            count=each.count,
        )
        for each in ends
        if each.state in (State.FAILED, State.TIMEOUT)
    ]
    return sorted(found, key=lambda each: -each.count)


def _describe_target(target: TargetRow) -> dict[str, Any]:
    """What is told of a target, alone or among others."""
    same = (
        *("signature", "file_name", "target_user", "code", "reason", "message", "progress", "speed"),
        *("joined_at", "fetched_at", "sent_at", "uploaded_at", "ended_at"),
    )
    return {
        **{name: getattr(target, name) for name in same},
        "target_agent_id": target.agent_id,
        "target_container_id": target.container_id,
        "target_file_dir": target.folder,
        "status": target.state,
        "cancelling": target.is_cancelling,
    }


def _no_job() -> Missing:
    return missing("job", "Check the id, and whether your project has targets in it.")
