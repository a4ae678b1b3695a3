"""Start lanes, and send them updates and queries.

Updates and queries are single calls without the SDK's retries. While a lane continues as new, it refuses an update and
the SDK would retry after a second; callers here repeat after some milliseconds, and the number of a batch prevents that
it is applied twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias, TypeVar

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import QueryRejectCondition, UpdateWorkflowExecutionLifecycleStage, WorkflowExecutionStatus
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.update.v1 import Input, Meta, Outcome, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    QueryWorkflowRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from domain.tasks import names
from domain.tasks.activity_models import LaneInput
from domain.tasks.messages import LaneBatch, LaneBatchReply, TaskLookup, TaskLookupReply, TaskSearch, TaskSearchReply
from domain.tasks.names import LaneName, split_type_id
from infra import outages, starts
from infra.outages import ENGINE_OUTAGE_STATUSES, EngineUnresponsive
from infra.starts import SameIdPolicy, WorkflowStart
from systems.protocol import create_no_schedules

CALL_TIMEOUT = QUERY_TIMEOUT = timedelta(seconds=5)

Reply = TypeVar("Reply")

_COMPLETED = WaitPolicy(
    lifecycle_stage=UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
)
# A query while another one is waiting, and the reply of a worker that has evicted the workflow.
_NOT_DELIVERED = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION)

_TIMED_OUT = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)

HistoryPosition: TypeAlias = tuple[str, int]
"""A run, and the length of its history."""


class LaneClosed(Exception):
    """The lane has ended, or was never started."""


class LaneBusy(Exception):
    """The lane continues as new, or has as many calls as it can take; the same call may be repeated at once."""


class LaneUnresponsive(EngineUnresponsive):
    """It is unknown whether the call arrived; the same call may be repeated in a moment."""


async def start_lane(engine: Client, lane: LaneInput, summary: str) -> None:
    """Start a lane, unless it was started before."""
    start = WorkflowStart(
        workflow=names.LANE_WORKFLOW,
        argument=lane,
        id=names.build_lane_workflow_id((lane.type, lane.pos)),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE,
        attributes=build_search_attributes(lane.type),
        summary=summary,
    )
    await starts.start_workflow(engine, start)


def build_search_attributes(type_: str) -> TypedSearchAttributes:
    """Return the search attributes of lanes; their ids contain type and position."""
    return starts.build_search_attributes(names.SYSTEM, project_id=split_type_id(type_)[0])


create_or_update_schedules = create_no_schedules


async def apply_batch(engine: Client, lane: LaneName, batch: LaneBatch) -> LaneBatchReply:
    """Send a batch to a lane as one update.

    Raises:
        LaneClosed: The lane has ended.
        LaneBusy: It continues as new.
        LaneUnresponsive: It is unknown whether the batch was applied.
    """
    # The number of a batch identifies it in every run of the lane.
    update_id = f"{batch.sender}-{batch.number}"
    request = UpdateWorkflowExecutionRequest(
        namespace=engine.namespace,
        workflow_execution=WorkflowExecution(workflow_id=names.build_lane_workflow_id(lane)),
        wait_policy=_COMPLETED,
        request=Request(meta=Meta(update_id=update_id, identity=engine.identity), input=Input(name=names.APPLY_BATCH)),
    )
    request.request.input.args.payloads.extend(await engine.data_converter.encode([batch]))
    try:
        response = await engine.workflow_service.update_workflow_execution(request, retry=False, timeout=CALL_TIMEOUT)
    except RPCError as error:
        raise _convert_rpc_error_to_lane_error(error) from error
    return await _decode_reply(engine, _get_payloads_or_raise_unresponsive(response.outcome), LaneBatchReply)


async def look_up_tasks(engine: Client, lane: LaneName, lookup: TaskLookup) -> TaskLookupReply:
    """Query tasks of a lane by key; raises what `search_tasks` does."""
    return await _query_lane(engine, lane, names.LOOK_UP, lookup, TaskLookupReply)


async def search_tasks(engine: Client, lane: LaneName, search: TaskSearch) -> TaskSearchReply:
    """Query tasks of a lane by their properties.

    Raises:
        LaneClosed: The lane has ended.
        LaneBusy: Another query is waiting.
        LaneUnresponsive: There was no reply.
    """
    return await _query_lane(engine, lane, names.SEARCH, search, TaskSearchReply)


async def read_history_position(engine: Client, lane: LaneName) -> HistoryPosition:
    """Return the current run of a lane and the length of its history, which change with everything the lane does.

    Raises:
        LaneClosed: The lane has ended.
        LaneUnresponsive: There was no reply.
    """
    workflow_id = names.build_lane_workflow_id(lane)
    request = DescribeWorkflowExecutionRequest(
        namespace=engine.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    try:
        response = await engine.workflow_service.describe_workflow_execution(request, retry=False, timeout=CALL_TIMEOUT)
    except RPCError as error:
        raise _convert_rpc_error_to_lane_error(error) from error
    info = response.workflow_execution_info
    if info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
        raise LaneClosed(workflow_id)
    return info.execution.run_id, info.history_length


async def _query_lane(engine: Client, lane: LaneName, query: str, argument: object, reply: type[Reply]) -> Reply:
    workflow_id = names.build_lane_workflow_id(lane)
    request = QueryWorkflowRequest(
        namespace=engine.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id),
        query=WorkflowQuery(query_type=query),
        query_reject_condition=QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_OPEN,
    )
    request.query.query_args.payloads.extend(await engine.data_converter.encode([argument]))
    try:
        response = await engine.workflow_service.query_workflow(request, retry=False, timeout=QUERY_TIMEOUT)
    except RPCError as error:
        if error.status in _TIMED_OUT:
            await _send_empty_batch(engine, lane)
        raise _convert_rpc_error_to_lane_error(error) from error
    if response.HasField("query_rejected"):
        raise LaneClosed(workflow_id)
    return await _decode_reply(engine, response.query_result.payloads, reply)


async def _send_empty_batch(engine: Client, lane: LaneName) -> None:
    """Have a worker keep a lane in memory.

    After a restart of the workers each query replays the history of its lane, until the next update. On a busy machine
    the queries of many lanes would never be answered in time, however often they are repeated.
    """
    with suppress(LaneBusy, LaneUnresponsive):
        await apply_batch(engine, lane, LaneBatch(sender=uuid.uuid4().hex, number=1))


def _get_payloads_or_raise_unresponsive(outcome: Outcome) -> Sequence[Payload]:
    if outcome.HasField("failure"):
        # The run ended between accepting the update and answering it; the batch's number shows whether it was applied.
        raise LaneUnresponsive(outcome.failure.message)
    if not outcome.HasField("success"):
        raise LaneUnresponsive("the engine dropped the update before its workflow answered")
    return outcome.success.payloads


async def _decode_reply(engine: Client, payloads: Sequence[Payload], reply: type[Reply]) -> Reply:
    decoded: list[Reply] = await engine.data_converter.decode(payloads, [reply])
    return decoded[0]


def _convert_rpc_error_to_lane_error(error: RPCError) -> Exception:
    if outages.is_workflow_or_schedule_missing(error):
        return LaneClosed(str(error))
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        return LaneBusy(str(error))
    return LaneUnresponsive(str(error)) if error.status in (*ENGINE_OUTAGE_STATUSES, *_NOT_DELIVERED) else error
