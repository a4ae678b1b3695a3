"""Routes with which workers hold due tasks, or wait for some."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from api.http import parsing
from api.http.problems import FieldProblem
from api.http.routes import Access, Call
from api.tasks.context import TaskContext, get_context, routes
from api.tasks.lanes import LaneTimeout
from api.tasks.requests import HoldTasksQuery, HoldTasksRequest
from api.tasks.responses import HoldTasksResponse, build_held_task, build_success
from api.tasks.storage import TYPE_UNKNOWN, CachedTaskType
from domain.faults import Missing
from domain.tasks.messages import HoldOperation, OperationCode, SetOperation, Task, TaskStatus
from domain.tasks.names import TaskId
from infra import log
from workflows.tasks.handle import LaneClosed

LANES_PER_HOLD = 8
"""Lanes asked for one request: each takes some milliseconds."""
POLL_SECONDS = 1.0
"""How often a waiting request checks its queue without a notification."""
_PROBLEMS = {TYPE_UNKNOWN: Missing}
_log = log.get(__name__)


@routes.post("/v1/hold_tasks", access=Access.PROJECT, problems=_PROBLEMS)
async def hold_tasks(call: Call, body: HoldTasksRequest, query: HoldTasksQuery) -> HoldTasksResponse | web.Response:
    """Hold due tasks.

    You hold them until `lease_end`: by then set their result, or send a heartbeat. After that other workers get them,
    and one more failure is counted. If you disconnect before the response, they return to the queue at once. With
    `wait` the response comes as soon as a task is due, or when the time is up; an empty list is no error.
    """
    return await _hold(call, _merge(body, query))


@routes.post("/v1/hold_task", access=Access.PROJECT, problems=_PROBLEMS)
async def hold_task(call: Call, body: HoldTasksRequest, query: HoldTasksQuery) -> HoldTasksResponse | web.Response:
    """Hold due tasks; the same as `hold_tasks`."""
    return await _hold(call, _merge(body, query))


def _merge(body: HoldTasksRequest, query: HoldTasksQuery) -> HoldTasksRequest:
    """Merge body and query; flowSvr's client sends every field in both.

    Raises:
        Refusal: They differ, or neither has a type.
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
        parsing.reject_fields("request", errors)
    merged = {name: in_query if in_body is None else in_body for name, (in_body, in_query) in sent.items()}
    return body.model_copy(update=merged)


async def _hold(call: Call, body: HoldTasksRequest) -> web.Response:
    context = get_context(call)
    name = body.task_type or ""
    until = time.monotonic() + min(body.wait, call.services.settings.tasks.wait_max_seconds)
    if body.wait:
        call.lift_time_limit()
    while True:
        task_type = context.types.get_cached(name, call.project_id) or await context.types.get(name, call.project_id)
        limit = min(body.limit or task_type.schedule_limit, task_type.schedule_limit)
        held = await _hold_in_lanes(context, task_type, limit)
        left = until - time.monotonic()
        if held or left <= 0 or _is_disconnected(call):
            break
        await context.heads.wait_for_due_task(task_type.type, min(left, POLL_SECONDS))
    if held and _is_disconnected(call):
        await _return_to_queue(context, task_type, held)
        held = []
    if held:
        context.count(task_type.type, "held", len(held))
    return build_success(task_list=await _build_tasks(context, task_type, held))


async def _hold_in_lanes(context: TaskContext, task_type: CachedTaskType, limit: int) -> list[tuple[TaskId, Task]]:
    """Hold up to `limit` tasks, from the lane with the earliest due task first."""
    held: list[tuple[TaskId, Task]] = []
    if task_type.rules.paused:
        return held
    await context.heads.refresh(task_type.type)
    asked: set[int] = set()
    while (missing := limit - len(held)) and len(asked) < LANES_PER_HOLD:
        pos = context.heads.find_due_lane(task_type.type, asked)
        if pos is None:
            break
        asked.add(pos)
        lane = (task_type.type, pos)
        try:
            with context.heads.reserve(lane, missing):
                tasks = await context.lanes.hold(lane, task_type.rules, HoldOperation(missing))
        except LaneClosed:
            context.heads.remove(lane)
        except LaneTimeout:
            # The caller gets what other lanes have granted already.
            if held:
                break
            raise
        else:
            held += [(TaskId(task.key, task_type.name, pos), task) for task in tasks]
    return held


async def _return_to_queue(context: TaskContext, task_type: CachedTaskType, held: list[tuple[TaskId, Task]]) -> None:
    """Return tasks whose caller disconnected before the response: they were not begun, so no failure is counted."""
    operations = (
        context.lanes.change(
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


async def _build_tasks(
    context: TaskContext, task_type: CachedTaskType, held: list[tuple[TaskId, Task]]
) -> list[dict[str, Any]]:
    if any(task.flags for _, task in held):
        texts = await asyncio.gather(*(context.texts.read_texts(str(task_id), task) for task_id, task in held))
    else:
        texts = [(task.content, task.log) for _, task in held]
    return [
        build_held_task(str(task_id), task, each, task_type) for (task_id, task), each in zip(held, texts, strict=True)
    ]


def _is_disconnected(call: Call) -> bool:
    """Return whether the caller has disconnected; tasks held for it would wait until their lease expires."""
    transport = call.request.transport
    return transport is None or transport.is_closing()
