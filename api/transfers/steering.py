"""Steering: cancel a task, or all that the project has in a job."""

from __future__ import annotations

from http import HTTPStatus

from api.routes import Access, Call
from api.transfers.answers import JobAnswer, TaskAnswer
from api.transfers.reading import EXPIRED, Wanted, read_job, stand
from api.transfers.room import JobPath, TaskPath, desk, routes
from domain.faults import Gone, Missing

_PROBLEMS = {"not_found": Missing, EXPIRED: Gone}


@routes.post(
    "/v1/transfers/jobs/{job_id}/cancel",
    access=Access.PROJECT,
    slashes="job_id",
    status=HTTPStatus.ACCEPTED,
    problems=_PROBLEMS,
)
async def cancel_job(call: Call, path: JobPath) -> JobAnswer:
    """Cancel a job.

    All targets of your project that have not ended become Failed with the reason `cancelled`, in a moment or when the
    window ends. Whoever asks for the file afterwards joins the next job.
    """
    return await _cancel_job(call, path)


@routes.post(
    "/v1/transfers/{task_id}/cancel",
    access=Access.PROJECT,
    slashes="task_id",
    status=HTTPStatus.ACCEPTED,
    problems=_PROBLEMS,
)
async def cancel(call: Call, path: TaskPath) -> TaskAnswer:
    """Cancel a task.

    Its target becomes Failed with the reason `cancelled`, in a moment or when the window ends, and so do other tasks of
    the same target in the same job. One that has ended stays as it is.
    """
    return await _cancel(call, path)


async def _cancel_job(call: Call, path: JobPath) -> JobAnswer:
    answer = await read_job(call, path, Wanted())
    if not answer.status.final:
        look_up = desk(call).lookup
        # In this order: who joins after it is not cancelled with those before.
        await look_up.close_to(path.job_id, call.project_id)
        await look_up.cancel(path.job_id, call.project_id)
    return answer


async def _cancel(call: Call, path: TaskPath) -> TaskAnswer:
    here = desk(call)
    task = here.task(call, path.task_id)
    standing = await stand(call, task.job, task.target_key)
    if not standing.status.final:
        await here.lookup.cancel(str(task.job), call.project_id, task.target_key)
    return TaskAnswer(task_id=path.task_id, job_id=str(task.job), **standing.model_dump())
