"""Tasks, jobs with their targets page by page, and the list of jobs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from api.http import pagination
from api.http.pagination import PageResponse
from api.http.routes import Access, Call
from api.transfers.context import get_context, missing, routes
from api.transfers.joins import WINDOWS_MAX
from api.transfers.lookup import EndedJob, Waiting, is_over
from api.transfers.requests import JobTargetsQuery, TransferJobPath, TransferJobsQuery, TransferTaskPath
from api.transfers.responses import (
    TaskTargetStatus,
    TransferJobResponse,
    TransferJobSummary,
    TransferTargetResponse,
    TransferTaskResponse,
    describe_target,
    group_failures,
    summarize_job,
)
from domain.faults import Gone, Invalid, Missing
from domain.transfers import names
from domain.transfers.models import State
from domain.transfers.names import Job
from stores.transfers import jobs, targets
from stores.transfers.jobs import JobRow
from stores.transfers.targets import TargetFilter

EXPIRED = "transfer_expired"


@routes.get(
    "/v1/transfers/jobs/{job_id}",
    access=Access.PROJECTS,
    slashes="job_id",
    problems={"not_found": Missing, EXPIRED: Gone},
)
async def read_job(call: Call, path: TransferJobPath, query: JobTargetsQuery) -> TransferJobResponse:
    """Tell where a job stands.

    It counts your project's targets only. Half an hour after the job's end its state is forgotten; for seven days more
    the answer is that it was there.
    """
    job = names.read_job(path.job_id)
    if job is None:
        raise _no_job()
    ended = await get_context(call).lookup.job(path.job_id, call.scope)
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
async def read(call: Call, path: TransferTaskPath) -> TransferTaskResponse:
    """Tell where a task stands.

    Ask as often as you like; while its window is open it is Pending. Half an hour after its job's end the task's state
    is forgotten.
    """
    task = get_context(call).task(call, path.task_id)
    return task_answer(call, path.task_id, task.job, await stand(call, task.job, task.target_key))


def task_answer(call: Call, task_id: str, job: Job, standing: TaskTargetStatus) -> TransferTaskResponse:
    """What is told of a task whose target stands so."""
    closes_at = datetime.fromtimestamp(names.closes_at(job.bucket, get_context(call).window_seconds), UTC)
    return TransferTaskResponse(task_id=task_id, job_id=str(job), window_closes_at=closes_at, **standing.model_dump())


async def stand(call: Call, job: Job, key: int) -> TaskTargetStatus:
    """Where a target stands that has joined: its id proves that.

    Raises:
        Gone: It was forgotten.
    """
    context = get_context(call)
    windows_ahead = job.bucket - names.bucket_at(time.time(), context.window_seconds)
    # Further ahead lie only jobs from before somebody changed the length of windows.
    if 0 <= windows_ahead <= WINDOWS_MAX:
        return await _pending(call, job, key)
    target = await context.lookup.target(str(job), key, call.project_id)
    if target is None:
        if await context.lookup.is_running(str(job)):
            return await _pending(call, job, key)
        # It may have been written down, and its job may even have ended, between the two questions.
        target = await context.lookup.target(str(job), key, call.project_id)
    if target is None or is_over(target.expires_at):
        raise gone("task")
    return TaskTargetStatus(**describe_target(target), gse_task_id=target.gse_task_id)


async def _pending(call: Call, job: Job, key: int) -> TaskTargetStatus:
    cancelling = await get_context(call).lookup.is_cancelled(str(job), key, call.project_id)
    return TaskTargetStatus(status=State.PENDING, cancelling=cancelling)


def gone(what: str) -> Gone:
    """What is told of a task or a job whose time is over."""
    return Gone(EXPIRED, f"This {what} ended too long ago; its state is kept for a while only.", "Ask sooner.")


async def _collecting(call: Call, job: Job) -> TransferJobResponse:
    """A job that nothing is written of yet, or nothing any more."""
    settings = call.services.settings.transfers
    closes_at = datetime.fromtimestamp(names.closes_at(job.bucket, settings.window_seconds), UTC)
    deadline_at = closes_at + timedelta(seconds=settings.timeout_seconds)
    count = await get_context(call).lookup.joined(str(job), call.scope)
    if not count:
        raise _no_job()
    known = summarize_job(job, {State.PENDING: count}, closes_at, deadline_at)
    return TransferJobResponse(**known, cancelling=await _is_cancelled(call, job), targets=[])


async def _with_targets(call: Call, job: Job, ended: EndedJob, query: JobTargetsQuery) -> TransferJobResponse:
    database, row = call.services.database, ended.row
    wanted = TargetFilter(query.status, query.reason, query.code, query.target_agent_id)
    found = await targets.list_page(database, row.id, call.scope, wanted, int(query.cursor or 0), query.limit)
    shown = found[: query.limit]
    known = summarize_job(job, ended.counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of)
    is_cancelled = await _is_cancelled(call, job)
    return TransferJobResponse(
        **known,
        cancelling=is_cancelled and not known["status"].final,
        retries=await jobs.list_retries(database, str(job), call.scope),
        troubles=group_failures(ended.ends),
        targets=[TransferTargetResponse(**describe_target(each)) for each in shown],
        next_cursor=str(shown[-1].key) if len(found) > len(shown) else None,
    )


async def _is_cancelled(call: Call, job: Job) -> bool:
    return await targets.is_job_cancelled(call.services.database, str(job), call.scope)


def _no_job() -> Missing:
    return missing("job", "Check the id, and whether your project has targets in it.")


@routes.get("/v1/transfers/jobs", access=Access.PROJECTS, problems={"cursor_invalid": Invalid})
async def browse_jobs(call: Call, query: TransferJobsQuery) -> PageResponse[TransferJobSummary]:
    """List the jobs that your project has targets in, those of the newest window first.

    Jobs whose window is open lead the first page. A job is listed as long as it can be asked about. The admin key that
    names no project lists everybody's.
    """
    context, project_id = get_context(call).listing, call.scope
    after = None if query.after is None else pagination.parse_numeric_id(query.after[1])
    waiting = [] if after is not None or query.ended else await context.waiting(project_id, query.search or "")
    rows = await jobs.list_page(call.services.database, project_id, query.search or "", query.ended, after, query.limit)
    listed = [(job, row) for row in rows if (job := names.read_job(row.job_id))]
    shown = listed[: query.limit]
    counts = await context.counts([row for _, row in shown], project_id)
    more = (
        pagination.encode_cursor((shown[-1][1].closes_at, str(shown[-1][1].id))) if len(listed) > query.limit else None
    )
    # One that was written down between the two questions is in both answers.
    written = {job for job, _ in listed}
    waiting = [each for each in waiting if each.job not in written]
    items = [_summarize_collecting(call, each) for each in waiting] + [
        _summarize_recorded(job, row, counts[row.id]) for job, row in shown
    ]
    return PageResponse[TransferJobSummary](items=items, next_cursor=more)


def _summarize_collecting(call: Call, waiting: Waiting) -> TransferJobSummary:
    settings = call.services.settings.transfers
    closes_at = datetime.fromtimestamp(names.closes_at(waiting.job.bucket, settings.window_seconds), UTC)
    deadline_at = closes_at + timedelta(seconds=settings.timeout_seconds)
    return TransferJobSummary(**summarize_job(waiting.job, {State.PENDING: waiting.targets}, closes_at, deadline_at))


def _summarize_recorded(job: Job, row: JobRow, counts: dict[State, int]) -> TransferJobSummary:
    return TransferJobSummary(
        **summarize_job(job, counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of)
    )
