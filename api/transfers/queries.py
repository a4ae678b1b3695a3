"""Queries: the state of a task, a job with a page of its targets, and the list of jobs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from api.http.routes import Call, RouteAccess
from api.transfers.context import (
    SavedJobAndOutcomes,
    build_missing_job_fault,
    get_transfer_context,
    is_expired,
    routes,
)
from api.transfers.joins import WINDOWS_MAX
from api.transfers.requests import JobTargetsQuery, TransferJobPath, TransferTaskPath
from api.transfers.responses import (
    TargetStatusAndIdentity,
    TransferJobResponse,
    TransferTargetResponse,
    TransferTaskResponse,
    build_failure_groups,
    build_job_summary_fields,
    build_target_fields,
)
from domain.faults import Gone, Missing
from domain.transfers import names
from domain.transfers.models import TransferState
from domain.transfers.names import TransferJobKey, TransferTaskKey
from stores.transfers import jobs, targets
from stores.transfers.targets import TargetFilter

EXPIRED = "transfer_expired"


@routes.get(
    "/v1/transfers/jobs/{job_id}",
    access=RouteAccess.PROJECTS,
    slashes="job_id",
    problems={"not_found": Missing, EXPIRED: Gone},
)
async def read_job(call: Call, path: TransferJobPath, query: JobTargetsQuery) -> TransferJobResponse:
    """Read the state of a job.

    It counts the targets of your project only. The state is kept for half an hour after the job's end; for seven more
    days the answer is that the job has expired.
    """
    job = names.parse_job_id(path.job_id)
    if job is None:
        raise build_missing_job_fault()
    saved = await get_transfer_context(call).lookup.find_job(path.job_id, call.project_filter)
    if saved is None:
        return await _read_unsaved_job_or_raise(call, job)
    if is_expired(saved.row.expires_at):
        raise build_expired_fault("job")
    return await _read_saved_job(call, job, saved, query)


@routes.get(
    "/v1/transfers/{task_id}",
    access=RouteAccess.PROJECT,
    slashes="task_id",
    reads_ahead=True,
    problems={"not_found": Missing, EXPIRED: Gone},
)
async def read_task(call: Call, path: TransferTaskPath) -> TransferTaskResponse:
    """Read the state of a task.

    Ask as often as you like; while its window is open it is Pending. The state is kept for half an hour after the end
    of its job.
    """
    task = get_transfer_context(call).parse_task_id(call, path.task_id)
    return build_task_response(call, path.task_id, task.job, await read_task_target(call, task))


def build_task_response(
    call: Call, task_id: str, job: TransferJobKey, target: TargetStatusAndIdentity
) -> TransferTaskResponse:
    """Build the response about a task from the state of its target."""
    closes_at = datetime.fromtimestamp(
        names.compute_window_end(job.window_number, get_transfer_context(call).window_seconds), UTC
    )
    return TransferTaskResponse(task_id=task_id, job_id=str(job), window_closes_at=closes_at, **target.model_dump())


async def read_task_target(call: Call, task: TransferTaskKey) -> TargetStatusAndIdentity:
    """Return the state of a task's target; that the target has joined is known from the id of the task.

    Raises:
        Gone: Its retention has ended.
    """
    context, job_id, key = get_transfer_context(call), str(task.job), task.target_key
    windows_ahead = task.job.window_number - names.compute_window_number(time.time(), context.window_seconds)
    # A window further ahead was computed before the length of windows was changed.
    if 0 <= windows_ahead <= WINDOWS_MAX:
        return await _read_pending_status(call, job_id, key)
    target = await context.lookup.find_target(job_id, key, call.project_id)
    if target is None:
        if await context.lookup.is_running(job_id):
            return await _read_pending_status(call, job_id, key)
        # The target may have been saved, and its job may have ended, between the two checks.
        target = await context.lookup.find_target(job_id, key, call.project_id)
    if target is None or is_expired(target.expires_at):
        raise build_expired_fault("task")
    return TargetStatusAndIdentity(
        **build_target_fields(target), deadline_at=target.deadline_at, gse_task_id=target.gse_task_id
    )


async def _read_pending_status(call: Call, job_id: str, key: int) -> TargetStatusAndIdentity:
    cancelling = await get_transfer_context(call).lookup.is_cancelled(job_id, key, call.project_id)
    return TargetStatusAndIdentity(status=TransferState.PENDING, cancelling=cancelling)


def build_expired_fault(what: str) -> Gone:
    """Build the error for a task or a job whose retention has ended, or that a restore has lost."""
    return Gone(
        EXPIRED,
        f"The state of this {what} is gone: it ended too long ago, or an older backup was restored here.",
        "Ask sooner. After a restore, send the file again: a host that has it gets it once more.",
    )


async def _read_unsaved_job_or_raise(call: Call, job: TransferJobKey) -> TransferJobResponse:
    """Return a job that is not in the database: a running one, or else raise that it is missing."""
    count = await get_transfer_context(call).lookup.count_joined_targets(str(job), call.project_filter)
    if not count:
        raise build_missing_job_fault()
    summary = build_unsaved_job_summary_fields(call, job, count)
    return TransferJobResponse(**summary, cancelling=await _is_job_cancelled(call, job), targets=[])


async def _read_saved_job(
    call: Call, job: TransferJobKey, saved: SavedJobAndOutcomes, query: JobTargetsQuery
) -> TransferJobResponse:
    database, row = call.services.database, saved.row
    filter_ = TargetFilter(query.status, query.reason, query.code, query.target_agent_id)
    rows = await targets.list_target_page_plus_one(
        database, row.id, call.project_filter, filter_, int(query.cursor or 0), query.limit
    )
    page = rows[: query.limit]
    summary = build_job_summary_fields(job, saved.counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of)
    is_cancelled = await _is_job_cancelled(call, job)
    return TransferJobResponse(
        **summary,
        cancelling=is_cancelled and not summary["status"].is_final,
        retries=await jobs.list_retry_job_ids(database, str(job), call.project_filter),
        failures_by_reason=build_failure_groups(saved.outcomes),
        targets=[TransferTargetResponse(**build_target_fields(each)) for each in page],
        next_cursor=str(page[-1].key) if len(rows) > len(page) else None,
    )


async def _is_job_cancelled(call: Call, job: TransferJobKey) -> bool:
    return await targets.is_job_cancelled(call.services.database, str(job), call.project_filter)


def build_unsaved_job_summary_fields(call: Call, job: TransferJobKey, count: int) -> dict[str, Any]:
    """Return the fields of a summary of a job that is not in the database yet."""
    settings = call.services.settings.transfers
    closes_at = datetime.fromtimestamp(names.compute_window_end(job.window_number, settings.window_seconds), UTC)
    deadline_at = closes_at + timedelta(seconds=settings.timeout_seconds)
    return build_job_summary_fields(job, {TransferState.PENDING: count}, closes_at, deadline_at)
