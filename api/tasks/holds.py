"""Routes of workers: hold due tasks or wait for some, set the results of held tasks, and renew their leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiohttp import web

from api import pauses
from api.http import parsing
from api.http.problems import FieldProblem
from api.http.routes import Call, RouteAccess
from api.tasks.context import TaskContext, build_unknown_task_fault, get_task_context, raise_if_code_is_failure, routes
from api.tasks.lanes import LaneTimeout
from api.tasks.requests import (
    HeartbeatTasksRequest,
    HoldTasksQuery,
    HoldTasksRequest,
    SetTaskResultRequest,
    SetTaskResultsRequest,
    TaskLease,
    TaskResult,
)
from api.tasks.responses import (
    SET_REFUSED,
    TASK_UNKNOWN,
    HoldTasksResponse,
    TaskIdResponse,
    TaskOutcomesResponse,
    build_held_fields,
    build_success_response,
    process_concurrently_and_collect_outcomes,
)
from api.tasks.storage import TYPE_UNKNOWN, CachedTaskType, is_too_long_for_lane
from domain.faults import Conflict, Missing
from domain.tasks.attempts import ResultWithoutLease, get_code_for_unleased_result
from domain.tasks.messages import (
    HeartbeatOperation,
    HoldOperation,
    OperationCode,
    OperationCodeText,
    SetOperation,
    Task,
    TaskFlags,
    TaskStatus,
)
from domain.tasks.names import SYSTEM, TaskId, TaskIdText
from infra import log, metrics
from stores.pauses import PauseRecord, build_task_type_subject
from workflows.tasks.handle import LaneClosed

LANES_PER_HOLD = 8
"""Lanes asked for one request: each takes some milliseconds."""
POLL_SECONDS = 1.0
"""How often a waiting request checks its queue without a notification."""
HOLDERS_MAX = 3
"""How often the holder of a task may change while a result without a lease is checked."""
_EVENTS = {1: "thrown_back", 2: "kept", 3: "succeeded", 4: "failed"}
_HOLD_PROBLEMS = {TYPE_UNKNOWN: Missing}
_SET_PROBLEMS = {TASK_UNKNOWN: Missing, SET_REFUSED: Conflict}
_log = log.get(__name__)


@routes.post("/v1/hold_tasks", access=RouteAccess.PROJECT, is_audited=False, problems=_HOLD_PROBLEMS)
async def hold_tasks(call: Call, body: HoldTasksRequest, query: HoldTasksQuery) -> HoldTasksResponse | web.Response:
    """Hold due tasks.

    You hold them until `lease_end`: by then set their result, or send a heartbeat. After that other workers get them,
    and one more failure is counted. If you disconnect before the response, they return to the queue at once. With
    `wait` the response comes as soon as a task is due, or when the time is up; an empty list is no error.
    """
    return await _hold_until_due_or_timeout_and_return_if_disconnected(
        call, _merge_or_reject_body_and_query(body, query)
    )


@routes.post("/v1/hold_task", access=RouteAccess.PROJECT, is_audited=False, problems=_HOLD_PROBLEMS)
async def hold_task(call: Call, body: HoldTasksRequest, query: HoldTasksQuery) -> HoldTasksResponse | web.Response:
    """Hold due tasks; the same as `hold_tasks`."""
    return await _hold_until_due_or_timeout_and_return_if_disconnected(
        call, _merge_or_reject_body_and_query(body, query)
    )


@routes.post("/v1/set_task", access=RouteAccess.PROJECT, is_audited=False, problems=_SET_PROBLEMS)
async def set_task(call: Call, body: SetTaskResultRequest) -> TaskIdResponse | web.Response:
    """Set the result of a held task.

    Status 3 and 4 end it. Status 1 returns it to the queue: with a higher `crt_retry_num` the attempt has failed, and
    the task is retried by the rules of its type, or ends as failed after the last retry; otherwise it goes on to its
    next stage, at the end of the queue. Status 2 keeps it running and renews its lease. Fields that are left out keep
    their values. Without a `lease` the result counts as the holder's; a late result of flowSvr's own client is refused
    where its log and its retry count show that it is late.
    """
    return build_success_response(task_id=await _store_task_result_in_lane(call, body.task_data))


@routes.post("/v1/set_tasks", access=RouteAccess.PROJECT, is_audited=False)
async def set_tasks(call: Call, body: SetTaskResultsRequest) -> TaskOutcomesResponse:
    """Set the results of many held tasks; each has an outcome of its own."""
    return await process_concurrently_and_collect_outcomes(
        body.task_list, lambda result: _store_task_result_in_lane(call, result)
    )


@routes.post("/v1/heartbeat_tasks", access=RouteAccess.PROJECT, is_audited=False)
async def heartbeat_tasks(call: Call, body: HeartbeatTasksRequest) -> TaskOutcomesResponse:
    """Renew the leases of held tasks.

    An outcome other than 0 means that you no longer hold the task, for example because it was cancelled.
    """
    return await process_concurrently_and_collect_outcomes(
        body.task_list, lambda lease: _send_heartbeat_of_task(call, lease)
    )


def _merge_or_reject_body_and_query(body: HoldTasksRequest, query: HoldTasksQuery) -> HoldTasksRequest:
    """Merge body and query; flowSvr's client sends every field in both.

    Raises:
        RequestRejected: They differ, or neither has a type.
    """
    sent = {name: (getattr(body, name), getattr(query, name)) for name in HoldTasksQuery.model_fields}
    errors = [
        FieldProblem(path=name, message=f"the body says {in_body!r} and the query {in_query!r}; say it once.")
        for name, (in_body, in_query) in sent.items()
        if None not in (in_body, in_query) and in_body != in_query
    ]
    if body.task_type is None and query.task_type is None:
        errors.append(FieldProblem(path="task_type", message="this field is missing; add it."))
    if errors:
        parsing.reject_request_with_field_errors("request", errors)
    merged = {name: in_query if in_body is None else in_body for name, (in_body, in_query) in sent.items()}
    return body.model_copy(update=merged)


async def _hold_until_due_or_timeout_and_return_if_disconnected(call: Call, body: HoldTasksRequest) -> web.Response:
    context = get_task_context(call)
    name = body.task_type or ""
    until = time.monotonic() + min(body.wait, call.services.settings.tasks.wait_max_seconds)
    if body.wait:
        call.remove_time_limit()
    while True:
        task_type = context.types.get_cached_unless_stale(name, call.project_id) or await context.types.require_type(
            name, call.project_id
        )
        limit = min(body.limit or task_type.schedule_limit, task_type.schedule_limit)
        paused = await _describe_pause_or_empty(call, task_type)
        with metrics.TASK_HOLD_SECONDS.time():
            held = [] if paused else await _hold_from_lanes_in_order_of_due_tasks(context, task_type, limit)
        left = until - time.monotonic()
        if held or left <= 0 or _is_disconnected(call):
            break
        await context.heads.wait_for_due_task(task_type.type, min(left, POLL_SECONDS))
    if held and _is_disconnected(call):
        await _return_undelivered_tasks_to_queue(context, task_type, held)
        held = []
    try:
        tasks = await _build_held_tasks(context, task_type, held)
    except BaseException:  # their texts cannot be read, or the request takes too long
        context.run_in_background(_return_undelivered_tasks_to_queue(context, task_type, held))
        raise
    if held:
        context.add_to_task_metric(task_type.type, "held", len(held))
    # A member of its own: `msg` stays as flowSvr's callers know it.
    why = {"paused": paused} if paused else {}
    return build_success_response(task_list=tasks, **why)


async def _describe_pause_or_empty(call: Call, task_type: CachedTaskType) -> str:
    """Return why no task of a type is given out: who paused it, since when and why; empty while tasks are."""
    cache = call.request.app[pauses.CACHE]
    if (pause := await cache.find_pause(SYSTEM)) is not None:
        return pause.describe("Tasks are")
    if not task_type.paused:
        return ""
    pause = await cache.find_pause(build_task_type_subject(task_type.type))
    return (pause or PauseRecord(None, "an operator", "")).describe(f"Tasks of the type {task_type.name!r} are")


async def _hold_from_lanes_in_order_of_due_tasks(
    context: TaskContext, task_type: CachedTaskType, limit: int
) -> list[tuple[TaskId, Task]]:
    """Hold up to `limit` tasks, from the lane with the earliest due task first."""
    held: list[tuple[TaskId, Task]] = []
    await context.heads.refresh_if_stale(task_type.type)
    asked: set[int] = set()
    while (missing := limit - len(held)) and len(asked) < LANES_PER_HOLD:
        pos = context.heads.find_lane_with_unreserved_due_task(task_type.type, asked)
        if pos is None:
            break
        asked.add(pos)
        try:
            held += await _hold_from_lane_or_return_if_cancelled(context, task_type, pos, missing)
        except LaneClosed:
            context.heads.remove_lane((task_type.type, pos))
        except LaneTimeout:
            # The caller gets what other lanes have granted already.
            if held:
                break
            raise
        except BaseException:
            context.run_in_background(_return_undelivered_tasks_to_queue(context, task_type, held))
            raise
    return held


async def _hold_from_lane_or_return_if_cancelled(
    context: TaskContext, task_type: CachedTaskType, pos: int, limit: int
) -> list[tuple[TaskId, Task]]:
    """Hold tasks of a lane; if this request is cancelled, what the lane grants all the same returns to its queue."""
    lane = (task_type.type, pos)

    async def add_ids(holding: Awaitable[list[Task]]) -> list[tuple[TaskId, Task]]:
        return [(TaskId(task.key, task_type.name, pos), task) for task in await holding]

    async def return_granted(holding: Awaitable[list[Task]]) -> None:
        with suppress(Exception):  # then the lane has granted nothing, or its leases expire
            await _return_undelivered_tasks_to_queue(context, task_type, await add_ids(holding))

    with context.heads.reserve_tasks(lane, limit):
        holding = context.lanes.begin_hold(lane, task_type.rules, HoldOperation(limit))
        try:
            return await add_ids(asyncio.shield(holding))
        except asyncio.CancelledError:
            context.run_in_background(return_granted(holding))
            raise


async def _return_undelivered_tasks_to_queue(
    context: TaskContext, task_type: CachedTaskType, held: list[tuple[TaskId, Task]]
) -> None:
    """Return tasks whose caller gets no response with them: they were not begun, so no failure is counted."""
    if not held:
        return
    operations = (
        context.lanes.change_task(
            (task_type.type, task_id.pos),
            task_type.rules,
            SetOperation(task.key, TaskStatus.PENDING, task.lease),
        )
        for task_id, task in held
    )
    codes = await asyncio.gather(*operations, return_exceptions=True)
    # A task that could not be returned becomes available when its lease expires.
    failed = sum(code != OperationCode.OK for code in codes)
    _log.info("hold_returned", type=task_type.type, tasks=len(held), failed=failed)


async def _build_held_tasks(
    context: TaskContext, task_type: CachedTaskType, held: list[tuple[TaskId, Task]]
) -> list[dict[str, Any]]:
    if any(task.flags for _, task in held):
        texts = await asyncio.gather(*(context.texts.read_texts(str(task_id), task) for task_id, task in held))
    else:
        texts = [(task.content, task.log) for _, task in held]
    return [
        build_held_fields(str(task_id), task, each, task_type)
        for (task_id, task), each in zip(held, texts, strict=True)
    ]


def _is_disconnected(call: Call) -> bool:
    """Return whether the caller has disconnected; tasks held for it would wait until their lease expires."""
    transport = call.request.transport
    return transport is None or transport.is_closing()


async def _store_task_result_in_lane(call: Call, result: TaskResult) -> TaskIdText:
    context = get_task_context(call)
    parsed, task_type = await context.parse_task_id_and_type(call, result.task_id)
    if result.task_type and result.task_type != parsed.name:
        raise build_unknown_task_fault(result.task_id)
    setting = SetOperation(
        parsed.key,
        result.status,
        lease=result.lease,
        crt_retry_num=result.crt_retry_num,
        stage=result.task_stage,
        content=result.task_content,
        log=result.schedule_log,
        is_unleased=result.lease is None,
    )
    if result.lease is None and task_type.lease_required:
        code: str = OperationCode.NO_LEASE
    elif result.lease is None and result.is_from_flowsvr_client:
        code = await _store_result_without_lease_unless_outdated(context, task_type, parsed, setting, result)
    else:
        code = await _store_long_texts_and_set_in_lane(context, task_type, parsed, setting)
    if code == OperationCode.MISSING:
        code = await context.get_code_for_archived_task(result.task_id, task_type, setting)
    raise_if_code_is_failure(code, result.task_id)
    context.add_to_task_metric(task_type.type, _EVENTS[result.status])
    return result.task_id


async def _store_result_without_lease_unless_outdated(
    context: TaskContext, task_type: CachedTaskType, task_id: TaskId, setting: SetOperation, result: TaskResult
) -> OperationCodeText:
    """Set a task for a client without leases, unless the task's log shows that the result is not its holder's.

    The task is read first, and set only under the lease that it had then, so a later holder is not affected.
    """
    unleased = ResultWithoutLease(
        status=result.status,
        crt_retry_num=result.crt_retry_num or 0,
        stage=result.task_stage,
        log=result.schedule_log or "",
        has_ended=result.order_time not in (None, 0),
    )
    for _ in range(HOLDERS_MAX):
        task = await context.find_in_lane(task_id, task_type)
        if task is None:
            return OperationCode.MISSING
        _, log = await context.texts.read_texts(result.task_id, task)
        verdict = get_code_for_unleased_result(unleased, task, log)
        if verdict == OperationCode.SAME:
            return verdict
        if task.status != TaskStatus.RUNNING:
            return await _store_long_texts_and_set_in_lane(context, task_type, task_id, setting)
        if verdict == OperationCode.STALE:
            return verdict
        setting.lease = task.lease
        code = await _store_long_texts_and_set_in_lane(context, task_type, task_id, setting)
        if code != OperationCode.STALE:
            return code
    return OperationCode.STALE


async def _store_long_texts_and_set_in_lane(
    context: TaskContext, task_type: CachedTaskType, task_id: TaskId, setting: SetOperation
) -> OperationCodeText:
    """Set a task in its lane; texts that do not fit there are stored outside."""
    await _store_long_texts_and_replace_by_references(context, task_id, setting, is_too_long_for_lane)
    code = await context.change_task(task_type, task_id, setting)
    if code == OperationCode.NO_ROOM:
        await _store_long_texts_and_replace_by_references(context, task_id, setting, bool)
        code = await context.change_task(task_type, task_id, setting)
    return code


async def _send_heartbeat_of_task(call: Call, lease: TaskLease) -> TaskIdText:
    context = get_task_context(call)
    parsed, task_type = await context.parse_task_id_and_type(call, lease.task_id)
    code = await context.change_task(task_type, parsed, HeartbeatOperation(parsed.key, lease.lease))
    if code == OperationCode.MISSING and await context.find_in_archive(lease.task_id, task_type):
        code = OperationCode.FINAL
    raise_if_code_is_failure(code, lease.task_id)
    return lease.task_id


async def _store_long_texts_and_replace_by_references(
    context: TaskContext, task_id: TaskId, setting: SetOperation, must_be_stored: Callable[[str], bool]
) -> None:
    """Store texts outside the lane, and put references in their place."""
    if setting.content is not None and not setting.flags & TaskFlags.CONTENT and must_be_stored(setting.content):
        setting.content = await context.texts.write_and_get_reference(str(task_id), setting.content)
        setting.flags |= TaskFlags.CONTENT
    if setting.log is not None and not setting.flags & TaskFlags.LOG and must_be_stored(setting.log):
        setting.log = await context.texts.write_and_get_reference(str(task_id), setting.log)
        setting.flags |= TaskFlags.LOG
