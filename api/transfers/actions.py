"""Steering: cancel a task, or all that the project has in a job."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from http import HTTPStatus

from api.http.routes import Access, Call
from api.transfers.context import get_context, missing, routes
from api.transfers.lookup import is_over
from api.transfers.queries import EXPIRED, gone, read_job, stand, task_answer
from api.transfers.requests import JobTargetsQuery, RetryTransferJobRequest, TransferJobPath, TransferTaskPath
from api.transfers.responses import RetryTransferJobResponse, TransferJobResponse, TransferTaskResponse
from domain.faults import Conflict, Forbidden, Gone, Missing
from domain.transfers import names
from domain.transfers.joining import Retry
from domain.transfers.models import Reason
from domain.transfers.names import Job
from domain.transfers.openings import NOT_OPENED
from stores.transfers import targets

NOTHING_FAILED = "nothing_failed"
TAKEN_SECONDS, TAKEN_POLL_SECONDS = 5.0, 0.1
RETRIES_MAX = 100
"""Of one window's job, retries of retries included."""


_PROBLEMS = {"not_found": Missing, EXPIRED: Gone}


@routes.post(
    "/v1/transfers/jobs/{job_id}/cancel",
    access=Access.PROJECT,
    slashes="job_id",
    status=HTTPStatus.ACCEPTED,
    problems=_PROBLEMS,
)
async def cancel_job(call: Call, path: TransferJobPath) -> TransferJobResponse:
    """Cancel a job.

    All targets of your project that have not ended become Failed with the reason `cancelled`, in a moment or when the
    window ends; until then they and the job are `cancelling`. Whoever asks for the file afterwards joins the next job.
    """
    return await _cancel_job(call, path)


@routes.post(
    "/v1/transfers/{task_id}/cancel",
    access=Access.PROJECT,
    slashes="task_id",
    status=HTTPStatus.ACCEPTED,
    problems=_PROBLEMS,
)
async def cancel(call: Call, path: TransferTaskPath) -> TransferTaskResponse:
    """Cancel a task.

    Its target becomes Failed with the reason `cancelled`, in a moment or when the window ends, and so do other tasks of
    the same target in the same job. One that has ended stays as it is.
    """
    return await _cancel(call, path)


@routes.post(
    "/v1/transfers/jobs/{job_id}/retry",
    access=Access.PROJECT,
    slashes="job_id",
    status=HTTPStatus.ACCEPTED,
    body_optional=True,
    problems=_PROBLEMS | {NOTHING_FAILED: Conflict, NOT_OPENED: Forbidden},
)
async def retry_job(call: Call, path: TransferJobPath, body: RetryTransferJobRequest) -> RetryTransferJobResponse:
    """Send failed targets again.

    All targets of your project in this job that failed or ran out of time, or those of one reason, are sent again at
    once by a job of their own. Each is sent again by one job only: what fails there, too, is retried there.
    """
    return await _retry_job(call, path, body)


async def _cancel_job(call: Call, path: TransferJobPath) -> TransferJobResponse:
    answer = await read_job(call, path, JobTargetsQuery())
    if not answer.status.final:
        # In this order: who joins after it is not cancelled with those before.
        await get_context(call).lookup.close_to(path.job_id, call.project_id)
        await targets.cancel(call.services.database, path.job_id, [call.project_id])
        return await read_job(call, path, JobTargetsQuery())
    return answer


async def _retry_job(call: Call, path: TransferJobPath, body: RetryTransferJobRequest) -> RetryTransferJobResponse:
    context, job = get_context(call), names.read_job(path.job_id)
    if job is None:
        raise missing("job", "Check the id, and whether your project has targets in it.")
    ended = await context.lookup.job(path.job_id, call.project_id)
    if ended is None:
        await read_job(call, path, JobTargetsQuery())  # raises where there is no such job
        raise Conflict(NOTHING_FAILED, f"{path.job_id} has not begun to send: nothing has failed.", "Ask again later.")
    row, database = ended.row, call.services.database
    if is_over(row.expires_at):
        raise gone("job")
    count = await targets.count_failed(database, row.id, call.project_id, body.reason)
    if not count:
        raise _nothing_failed(path.job_id, body.reason)
    await _check_opened(call, job, row.id, body.reason)
    retry = Retry(job_id=path.job_id, project_id=call.project_id, reason=body.reason, targets=count)
    until = time.monotonic() + TAKEN_SECONDS
    for number in range(1, RETRIES_MAX + 1):
        again = replace(job, retry=number)
        if await context.joins.retry(again, retry):
            return RetryTransferJobResponse(job_id=str(again), retry_of=path.job_id, targets=count)
        # An earlier retry may only just have begun to take them.
        while await context.lookup.job(str(again), call.project_id) is None and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(TAKEN_POLL_SECONDS)
        if not await targets.count_failed(database, row.id, call.project_id, body.reason):
            raise _nothing_failed(path.job_id, body.reason)
    raise Conflict(NOTHING_FAILED, f"{path.job_id} was retried {RETRIES_MAX} times.", "Ask for the file anew.")


def _nothing_failed(job_id: str, reason: Reason | None) -> Conflict:
    return Conflict(
        NOTHING_FAILED,
        f"No target of {job_id} has failed{f' for the reason {reason}' if reason else ''}, or "
        "another job sends them again already.",
        "See `counts`, `troubles` and `retries` of the job.",
    )


async def _check_opened(call: Call, job: Job, row_id: int, reason: Reason | None) -> None:
    """What was opened when it was sent first may have been taken back since."""
    context = get_context(call)
    if await context.openings.of(call.project_id) is None:
        return
    for each in await targets.list_failed_hosts(call.services.database, row_id, call.project_id, reason):
        await context.openings.check(call.project_id, job.file, each.target_user, each.folder, each.agent_ids)


async def _cancel(call: Call, path: TransferTaskPath) -> TransferTaskResponse:
    context = get_context(call)
    task = context.task(call, path.task_id)
    standing = await stand(call, task.job, task.target_key)
    if not standing.status.final:
        await targets.cancel(call.services.database, str(task.job), [call.project_id], task.target_key)
        standing = standing.model_copy(update={"cancelling": True})
    return task_answer(call, path.task_id, task.job, standing)
