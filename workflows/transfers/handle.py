"""How jobs of transfers are started, joined, asked and steered from outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.common import (
    QueryRejectCondition,
)

from domain.transfers import names
from domain.transfers.activity_models import JobStatus
from domain.transfers.joining import JobOrder, JoinGroup, JoinReply
from domain.transfers.models import State
from infra import starts
from infra.settings import Settings
from infra.starts import SameIdPolicy, WorkflowStart

TASK_TIMEOUT: Final = timedelta(seconds=10)
"""Longer than elsewhere: who takes up a full job of a dead worker replays 1,500 groups, for 3 s of a processor."""

_OPEN = QueryRejectCondition.NOT_OPEN


async def join(engine: Client, job_id: str, group: JoinGroup, group_id: str, timeout: timedelta) -> JoinReply:
    """Hand a group over to a job that runs."""
    reply: JoinReply = await engine.get_workflow_handle(job_id).execute_update(
        names.JOIN, group, id=group_id, rpc_timeout=timeout, result_type=JoinReply
    )
    return reply


async def start_and_join(
    engine: Client, order: JobOrder, group: JoinGroup, group_id: str, timeout: timedelta
) -> JoinReply:
    """Hand a group over to a job, which is started unless it runs already; one that is over is not started again."""
    job = WorkflowStart(
        workflow=names.JOB_WORKFLOW,
        argument=order,
        id=order.job_id,
        queue=names.QUEUE,
        same_id=SameIdPolicy.JOIN_OR_REFUSE,
        attributes=starts.build_search_attributes(names.SYSTEM, state=State.PENDING),
        summary=f"{order.file.path} to many hosts",
        task_timeout=TASK_TIMEOUT,
    )
    reply: JoinReply = await engine.execute_update_with_start_workflow(
        names.JOIN,
        group,
        start_workflow_operation=starts.build_start_operation(job),
        id=group_id,
        rpc_timeout=timeout,
        result_type=JoinReply,
    )
    return reply


async def start_retry(engine: Client, order: JobOrder) -> bool:
    """Start a job of targets that failed; whether there was none of that name before."""
    job = WorkflowStart(
        workflow=names.JOB_WORKFLOW,
        argument=order,
        id=order.job_id,
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE,
        attributes=starts.build_search_attributes(names.SYSTEM, state=State.PENDING),
        summary=f"{order.file.path} to hosts again",
    )
    return await starts.start_workflow(engine, job)


async def count_joined(engine: Client, job_id: str, project_id: str | None, timeout: timedelta | None = None) -> int:
    """How many targets a project, or all of them, have in a job that runs."""
    job = engine.get_workflow_handle(job_id)
    if project_id is None:
        status: JobStatus = await job.query(
            names.STATUS, result_type=JobStatus, reject_condition=_OPEN, rpc_timeout=timeout
        )
        return status.targets
    joined: int = await job.query(
        names.JOINED, project_id, result_type=int, reject_condition=_OPEN, rpc_timeout=timeout
    )
    return joined


async def close_to(engine: Client, job_id: str, project_id: str) -> None:
    """Let no more targets of a project into a job."""
    await engine.get_workflow_handle(job_id).signal(names.CLOSE_TO, project_id)


async def ensure_schedules(client: Client, settings: Settings) -> None:
    """Make none: only housekeeping runs by a schedule."""
