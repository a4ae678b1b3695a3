"""Calls to lanes: an update or a query as one message each, without the SDK's retries.

While a lane continues as new it answers “closing”, and the SDK would come back after a second: whoever calls here
repeats after some milliseconds instead, and knows by the batch's id that nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import (
    QueryRejectCondition,
    UpdateWorkflowExecutionLifecycleStage,
    WorkflowExecutionStatus,
)
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.update.v1 import Input, Meta, Outcome, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    QueryWorkflowRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from infra.outages import ENGINE_OUTAGE_STATUSES, EngineUnresponsive

Reply = TypeVar("Reply")

ANSWER_TIMEOUT = timedelta(seconds=5)

_COMPLETED = WaitPolicy(
    lifecycle_stage=UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
)
# A query that finds another one waiting, and what a worker answers that has lost the workflow.
_UNTAKEN = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION)


class Over(Exception):
    """The workflow has ended, or there never was one."""


class Closing(Exception):
    """The workflow continues as new, or has as much to do as it can take: the same call may be made again at once."""


class Unanswered(EngineUnresponsive):
    """Nobody knows whether the call arrived; the same one may be made again in a moment."""


async def update(
    engine: Client, workflow_id: str, name: str, update_id: str, argument: object, reply: type[Reply]
) -> Reply:
    """What a workflow's update answers.

    Raises:
        Over: The workflow has ended.
        Closing: It continues as new.
        Unanswered: It is not known whether the update was carried out.
    """
    request = UpdateWorkflowExecutionRequest(
        namespace=engine.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        wait_policy=_COMPLETED,
        request=Request(meta=Meta(update_id=update_id, identity=engine.identity), input=Input(name=name)),
    )
    request.request.input.args.payloads.extend(await engine.data_converter.encode([argument]))
    try:
        answer = await engine.workflow_service.update_workflow_execution(request, retry=False, timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        raise _told(error) from error
    return await _decoded(engine, _payloads(answer.outcome), reply)


async def query(engine: Client, workflow_id: str, name: str, argument: object, reply: type[Reply]) -> Reply:
    """What a running workflow's query answers.

    Raises:
        Over: The workflow has ended.
        Closing: Another query waits there.
        Unanswered: Nobody answered.
    """
    request = QueryWorkflowRequest(
        namespace=engine.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id),
        query=WorkflowQuery(query_type=name),
        query_reject_condition=QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_OPEN,
    )
    request.query.query_args.payloads.extend(await engine.data_converter.encode([argument]))
    try:
        answer = await engine.workflow_service.query_workflow(request, retry=False, timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        raise _told(error) from error
    if answer.HasField("query_rejected"):
        raise Over(workflow_id)
    return await _decoded(engine, answer.query_result.payloads, reply)


async def mark(engine: Client, workflow_id: str) -> tuple[str, int]:
    """How far a running workflow has come: its run, and how long the history of that is.

    Raises:
        Over: The workflow has ended.
        Unanswered: Nobody answered.
    """
    request = DescribeWorkflowExecutionRequest(
        namespace=engine.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    try:
        answer = await engine.workflow_service.describe_workflow_execution(request, retry=False, timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        raise _told(error) from error
    info = answer.workflow_execution_info
    if info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
        raise Over(workflow_id)
    return info.execution.run_id, info.history_length


def _payloads(outcome: Outcome) -> Sequence[Payload]:
    if outcome.HasField("failure"):
        # The run ended between taking the update up and answering it; the group's number tells whether it counted.
        raise Unanswered(outcome.failure.message)
    if not outcome.HasField("success"):
        raise Unanswered("the engine let go of the update before its workflow answered")
    return outcome.success.payloads


async def _decoded(engine: Client, payloads: Sequence[Payload], reply: type[Reply]) -> Reply:
    decoded: list[Reply] = await engine.data_converter.decode(payloads, [reply])
    return decoded[0]


def _told(error: RPCError) -> Exception:
    if error.status is RPCStatusCode.NOT_FOUND:
        return Over(str(error))
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        return Closing(str(error))
    return Unanswered(str(error)) if error.status in (*ENGINE_OUTAGE_STATUSES, *_UNTAKEN) else error
