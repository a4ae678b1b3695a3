"""Routes that create tasks: in the last lane of their type, or in the next one when that is full.

An id that the caller chose is stored with the id of its task before a lane receives the task. A repeated create finds
the same task, whichever process receives it.
"""

from __future__ import annotations

import hashlib

import msgspec
from aiohttp import web

from api.http.routes import Access, Call
from api.tasks.context import TaskContext, get_context, routes
from api.tasks.requests import CreateTaskRequest, CreateTasksRequest, NewTask
from api.tasks.responses import (
    TASK_DIFFERS,
    TaskIdResponse,
    TaskOutcomesResponse,
    build_success,
    process_each,
)
from api.tasks.storage import TYPE_UNKNOWN, CachedTaskType, is_long
from domain.faults import Conflict, Missing
from domain.tasks.messages import CreateOperation, OperationCode, Task, TaskFlags
from domain.tasks.names import TaskId, parse_task_id
from infra import secrets
from stores.tasks.keys import KeyClaim
from workflows.tasks.handle import LaneClosed

AGAIN = "again "
"""Prefix of the key of a task that was created in place of an ended one; the id of that one follows."""
_PROBLEMS = {TYPE_UNKNOWN: Missing, TASK_DIFFERS: Conflict}


@routes.post("/v1/create_task", access=Access.PROJECT, problems=_PROBLEMS)
async def create_task(call: Call, body: CreateTaskRequest) -> TaskIdResponse | web.Response:
    """Create a task.

    It is durable when this returns. With a `task_id` of your own the request may be repeated: the same id is the same
    task, however often it is sent and whatever became of the task; with another user, priority, content, stage or start
    it is an error.
    """
    return build_success(task_id=await _create(call, body.task_data))


@routes.post("/v1/create_tasks", access=Access.PROJECT)
async def create_tasks(call: Call, body: CreateTasksRequest) -> TaskOutcomesResponse:
    """Create many tasks.

    The same as single requests, in one; each task has an outcome of its own.
    """
    return await process_each(body.task_list, lambda new: _create(call, new))


async def _create(call: Call, new: NewTask) -> str:
    context = get_context(call)
    types, project_id = context.types, call.project_id
    task_type = types.get_cached(new.task_type, project_id) or await types.get(new.task_type, project_id)
    if new.task_id:
        if await _exists(context, call, new):
            return new.task_id
        return await _create_with_key(context, task_type, new)
    key = secrets.create_token()
    while True:
        task_id = TaskId(key, task_type.name, task_type.end_pos)
        if await _create_in_lane(context, task_type, task_id, new, 0) in {OperationCode.OK, OperationCode.SAME}:
            context.count(task_type.type, "created")
            return str(task_id)
        task_type = await context.open_next_lane(task_type, task_id.pos)


async def create_again(context: TaskContext, task_type: CachedTaskType, task_id: str, ended: Task) -> str:
    """Create a task equal to one that has ended, and return its id; repeated calls return the same task."""
    content, _ = await context.texts.read_texts(task_id, ended)
    return await _create_with_key(
        context,
        task_type,
        NewTask(
            task_type=task_type.name,
            task_id=f"{AGAIN}{task_id}",
            user_id=ended.user_id,
            task_content=content,
            task_priority=ended.priority,
            task_stage=ended.stage,
        ),
    )


async def _create_with_key(context: TaskContext, task_type: CachedTaskType, new: NewTask) -> str:
    fields: list[str | int] = [new.user_id, new.priority, new.task_content]
    fields += [new.start_ms] if new.start_time else []
    fields += [new.task_stage] if new.task_stage else []
    digest = hashlib.sha256(msgspec.json.encode(fields)).digest()
    task_id = str(TaskId(secrets.create_token(), task_type.name, task_type.end_pos))
    claim = await context.keys.claim(KeyClaim(task_type.type, new.task_id, task_id, digest))
    if claim.digest != digest:
        raise _build_task_differs(new.task_id)
    while True:
        parsed = parse_task_id(claim.task_id)
        if parsed is None:
            raise LookupError(f"the key {claim.key!r} stands for {claim.task_id!r}, which is not a task id")
        code = await _create_in_lane(context, task_type, parsed, new, TaskFlags.KEYED)
        # A lane that reports another content compares with what a worker wrote; the digest has been compared above.
        created = {OperationCode.OK, OperationCode.SAME, OperationCode.CONFLICT}
        if code in created or await context.archived.get(claim.task_id):
            context.count(task_type.type, "created")
            return claim.task_id
        # The lane does not have it and is full, so it never will.
        task_type = await context.open_next_lane(task_type, parsed.pos)
        claim = await context.keys.move(claim, str(TaskId(parsed.key, task_type.name, task_type.end_pos)))


async def _exists(context: TaskContext, call: Call, new: NewTask) -> bool:
    """Return whether the given id is that of an existing task.

    Raises:
        Conflict: It is, and the task differs.
    """
    parsed = parse_task_id(new.task_id)
    task_type = parsed and await context.find_type(parsed, call.project_id)
    is_of_type = parsed and task_type and task_type.name == new.task_type
    task = await context.find(parsed, task_type) if parsed and task_type and is_of_type else None
    if task is None:
        return False
    content, _ = await context.texts.read_texts(new.task_id, task)
    was_held = task.lease > 0 or task.crt_retry_num > 0 or task.modify_time > task.create_time
    is_same = was_held or (content, task.stage) == (new.task_content, new.task_stage)
    if (task.user_id, task.priority) != (new.user_id, new.priority) or not is_same:
        raise _build_task_differs(new.task_id)
    return True


async def _create_in_lane(
    context: TaskContext, task_type: CachedTaskType, task_id: TaskId, new: NewTask, flags: int
) -> str:
    """Create a task in its lane; start the lane if it should be open and does not exist."""
    content = new.task_content
    if is_long(content):
        content, flags = await context.texts.write(str(task_id), content), flags | TaskFlags.CONTENT
    task = CreateOperation(task_id.key, new.user_id, content, new.priority, new.task_stage, flags, new.start_ms)
    lane = (task_type.type, task_id.pos)
    try:
        return await context.lanes.create(lane, task_type.rules, task)
    except LaneClosed:
        await context.open_lane(lane)
    try:
        return await context.lanes.create(lane, task_type.rules, task)
    except LaneClosed:
        return OperationCode.FULL


def _build_task_differs(task_id: str) -> Conflict:
    return Conflict(
        TASK_DIFFERS,
        f"There is a task under the id {task_id!r} with another user, priority, content, stage or start.",
        "Send what was sent first, or choose another id.",
    )
