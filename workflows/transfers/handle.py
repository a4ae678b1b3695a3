"""Start, join and query jobs of transfers from outside workflows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain.transfers import names
from domain.transfers.activity_models import TransferJobStatus
from domain.transfers.joining import JoinBatch, JoinResult, TransferJobInput
from domain.transfers.models import TransferState
from infra import outages, starts
from infra.starts import SameIdPolicy, WorkflowStart
from systems.protocol import create_no_schedules

TASK_TIMEOUT: Final = timedelta(seconds=20)
"""Longer than elsewhere: a worker that takes over a full job replays 1,500 batches, which takes 3 s of a processor."""

_OPEN = QueryRejectCondition.NOT_OPEN


class JobFull(Exception):
    """The job takes no further batch; nothing of this one has joined."""


class JobOver(Exception):
    """The job has ended; nothing of this batch has joined, unless an earlier call with its id was not answered."""


async def join_job(engine: Client, job_id: str, batch: JoinBatch, batch_id: str, timeout: timedelta) -> JoinResult:
    """Let a batch join a running job.

    Raises:
        JobFull: It takes no further batch.
        JobOver: It has ended.
    """
    with _raise_job_full_or_over():
        reply: JoinResult = await engine.get_workflow_handle(job_id).execute_update(
            names.JOIN, batch, id=batch_id, rpc_timeout=timeout, result_type=JoinResult
        )
    return reply


async def start_and_join_job(
    engine: Client, job: TransferJobInput, batch: JoinBatch, batch_id: str, timeout: timedelta
) -> JoinResult:
    """Let a batch join a job, starting the job unless it runs; raises what `join_job` does.

    A job that has ended is not started again.
    """
    start = WorkflowStart(
        workflow=names.JOB_WORKFLOW,
        argument=job,
        id=job.job_id,
        queue=names.QUEUE,
        same_id=SameIdPolicy.JOIN_OR_REFUSE,
        attributes=starts.build_search_attributes(names.SYSTEM, state=TransferState.PENDING),
        summary=f"{job.file.path} to many hosts",
        task_timeout=TASK_TIMEOUT,
    )
    with _raise_job_full_or_over():
        reply: JoinResult = await engine.execute_update_with_start_workflow(
            names.JOIN,
            batch,
            start_workflow_operation=starts.build_start_with_update(start),
            id=batch_id,
            rpc_timeout=timeout,
            result_type=JoinResult,
        )
    return reply


async def find_join_result(engine: Client, job_id: str, batch_id: str, timeout: timedelta) -> JoinResult | None:
    """Return what a job, which may have ended, answered to a batch; None if it never had that batch."""
    update = engine.get_workflow_handle(job_id).get_update_handle(batch_id, result_type=JoinResult)
    try:
        with _raise_job_full_or_over():
            reply: JoinResult = await update.result(rpc_timeout=timeout)
    except (JobFull, JobOver):
        return None
    return reply


@contextmanager
def _raise_job_full_or_over() -> Iterator[None]:
    try:
        yield
    except WorkflowAlreadyStartedError as error:
        raise JobOver from error
    except WorkflowUpdateFailedError as error:
        is_full = isinstance(error.cause, ApplicationError) and error.cause.type == names.JOB_FULL
        raise (JobFull if is_full else JobOver) from error
    except RPCError as error:
        if error.status is RPCStatusCode.FAILED_PRECONDITION:  # the run has had as many updates as the engine allows
            raise JobFull from error
        if outages.is_workflow_or_schedule_missing(error):
            raise JobOver from error
        raise


async def start_retry_job(engine: Client, job: TransferJobInput) -> bool:
    """Start a job that retries failed targets; return False if a job with this id exists."""
    start = WorkflowStart(
        workflow=names.JOB_WORKFLOW,
        argument=job,
        id=job.job_id,
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE,
        attributes=starts.build_search_attributes(names.SYSTEM, state=TransferState.PENDING),
        summary=f"{job.file.path} to hosts again",
    )
    return await starts.start_workflow(engine, start)


async def count_project_targets(
    engine: Client, job_id: str, project_id: str | None, timeout: timedelta | None = None
) -> int:
    """Count the targets of a project, or of all projects, in a running job."""
    job = engine.get_workflow_handle(job_id)
    if project_id is None:
        status: TransferJobStatus = await job.query(
            names.STATUS, result_type=TransferJobStatus, reject_condition=_OPEN, rpc_timeout=timeout
        )
        return status.targets
    joined: int = await job.query(
        names.COUNT_TARGETS, project_id, result_type=int, reject_condition=_OPEN, rpc_timeout=timeout
    )
    return joined


async def refuse_further_targets(engine: Client, job_id: str, project_id: str) -> None:
    """Have a job refuse further targets of a project."""
    await engine.get_workflow_handle(job_id).signal(names.EXCLUDE_PROJECT, project_id)


create_or_update_schedules = create_no_schedules
