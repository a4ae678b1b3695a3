"""Routes of callers: create, cancel and put back tasks, and register, configure, pause and resume their types.

A task is created in the last lane of its type, or in the next one when that is full. An id that the caller chose is
stored with the id of its task before a lane receives the task. A repeated create finds the same task, whichever process
receives it.
"""

from __future__ import annotations

import hashlib

import msgspec
from aiohttp import web

from api import pauses
from api.http.routes import Call, RouteAccess
from api.tasks import quotas, responses
from api.tasks.context import TaskContext, build_unknown_task_fault, get_task_context, raise_if_code_is_failure, routes
from api.tasks.lanes import CancelOperation
from api.tasks.queries import count_pending_and_running_tasks
from api.tasks.requests import (
    CancelTaskRequest,
    CancelTasksRequest,
    CreateTaskRequest,
    CreateTasksRequest,
    NewTask,
    PutBackHeldOrCopyEndedTasksRequest,
    RegisterTaskTypeRequest,
    TaskToPutBack,
    TaskTypeActionRequest,
)
from api.tasks.responses import (
    SET_REFUSED,
    TASK_DIFFERS,
    TASK_UNKNOWN,
    TYPE_NOT_EMPTY,
    ResponseEnvelope,
    TaskIdResponse,
    TaskOutcomesResponse,
    TaskTypesResponse,
    build_success_response,
    process_concurrently_and_collect_outcomes,
)
from api.tasks.storage import TYPE_AMBIGUOUS, TYPE_CHANGED, TYPE_UNKNOWN, CachedTaskType, is_too_long_for_lane
from domain.faults import Conflict, Fault, Invalid, Missing
from domain.tasks.messages import (
    CreateOperation,
    OperationCode,
    OperationCodeText,
    SetOperation,
    Task,
    TaskFlags,
    TaskStatus,
)
from domain.tasks.names import TaskId, TaskIdText, parse_task_id
from domain.tasks.scheduling import SECOND
from infra import secrets
from stores import pauses as pause_store
from stores.pauses import build_task_type_subject
from stores.tasks.contents import ChosenKeyClaim
from workflows.tasks.handle import LaneClosed

AGAIN = "again "
"""Prefix of the key of a task that was created in place of an ended one; the id of that one follows."""
_CREATE_PROBLEMS = {TYPE_UNKNOWN: Missing, TASK_DIFFERS: Conflict}
_CANCEL_PROBLEMS = {TASK_UNKNOWN: Missing, SET_REFUSED: Conflict}
_TYPE_PROBLEMS = {TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict}
_REMOVE_PROBLEMS = {**_TYPE_PROBLEMS, TYPE_NOT_EMPTY: Conflict, TYPE_CHANGED: Conflict}


@routes.post("/v1/create_task", access=RouteAccess.PROJECT, is_audited=False, problems=_CREATE_PROBLEMS)
async def create_task(call: Call, body: CreateTaskRequest) -> TaskIdResponse | web.Response:
    """Create a task.

    It is durable when this returns. With a `task_id` of your own the request may be repeated: the same id is the same
    task, however often it is sent and whatever became of the task; with another user, priority, content, stage or start
    it is an error.
    """
    await quotas.count_new_tasks_within_quotas(call, get_task_context(call).open_tasks, 1)
    return build_success_response(task_id=await _create_task_or_release_quotas(call, body.task_data))


@routes.post(
    "/v1/create_tasks", access=RouteAccess.PROJECT, is_audited=False, problems={quotas.TOO_MANY_AT_ONCE: Invalid}
)
async def create_tasks(call: Call, body: CreateTasksRequest) -> TaskOutcomesResponse:
    """Create many tasks.

    The same as single requests, in one; each task has an outcome of its own.
    """
    await quotas.count_new_tasks_within_quotas(call, get_task_context(call).open_tasks, len(body.task_list))
    return await process_concurrently_and_collect_outcomes(
        body.task_list, lambda new: _create_task_or_release_quotas(call, new)
    )


@routes.post("/v1/cancel_task", access=RouteAccess.PROJECTS, problems=_CANCEL_PROBLEMS)
async def cancel_task(call: Call, body: CancelTaskRequest) -> TaskIdResponse | web.Response:
    """Cancel a task.

    It ends as cancelled at once; a worker that holds it learns of that at its next heartbeat or when it sets the task.
    """
    return build_success_response(task_id=await _cancel_task(call, body.task_id))


@routes.post("/v1/cancel_tasks", access=RouteAccess.PROJECTS)
async def cancel_tasks(call: Call, body: CancelTasksRequest) -> TaskOutcomesResponse:
    """Cancel many tasks; each has an outcome of its own."""
    return await process_concurrently_and_collect_outcomes(body.task_ids, lambda task_id: _cancel_task(call, task_id))


@routes.post("/v1/put_back_tasks", access=RouteAccess.PROJECTS)
async def put_back_tasks(call: Call, body: PutBackHeldOrCopyEndedTasksRequest) -> TaskOutcomesResponse:
    """Put many tasks back into their queues; each has an outcome of its own, with the id under which it waits then.

    A held task is taken from its holder and goes to the end of the queue, without counting as failed. An ended task
    stays as it is: a new task is created that equals it, with its last content and stage. Putting it back again returns
    the same new task. With a `lease` a task that has ended is refused.
    """
    return await process_concurrently_and_collect_outcomes(
        body.task_list, lambda task: _put_back_task_or_copy_ended(call, task)
    )


@routes.post("/v1/register_task_type", access=RouteAccess.PROJECT)
async def register_task_type(call: Call, body: RegisterTaskTypeRequest) -> ResponseEnvelope:
    """Register a type of tasks.

    Registering it again changes the fields that are given, at once; the others keep their values. Names belong to the
    project: another one may have a type of the same name.
    """
    return await _register_type(call, body)


@routes.post("/v1/register_task", access=RouteAccess.PROJECT)
async def register_task(call: Call, body: RegisterTaskTypeRequest) -> ResponseEnvelope:
    """Register a type of tasks; the same as `register_task_type`."""
    return await _register_type(call, body)


@routes.get("/v1/get_task_schedule_cfg_list", access=RouteAccess.PROJECT)
async def get_task_schedule_cfg_list(call: Call) -> TaskTypesResponse:
    """List the project's types with their configuration and the positions of their lanes."""
    types = await get_task_context(call).types.read_project_types_from_database(call.project_id)
    return TaskTypesResponse(task_schedule_cfg_list=[responses.build_task_type_response(each) for each in types])


@routes.post("/v1/pause_task_type", access=RouteAccess.PROJECTS, problems=_TYPE_PROBLEMS)
async def pause_task_type(call: Call, body: TaskTypeActionRequest) -> ResponseEnvelope:
    """Pause a type: holds return none of its tasks; all else goes on, and held tasks may be set."""
    return await _set_type_paused(call, body, paused=True)


@routes.post("/v1/resume_task_type", access=RouteAccess.PROJECTS, problems=_TYPE_PROBLEMS)
async def resume_task_type(call: Call, body: TaskTypeActionRequest) -> ResponseEnvelope:
    """Resume a paused type."""
    return await _set_type_paused(call, body, paused=False)


@routes.post("/v1/remove_task_type", access=RouteAccess.PROJECTS, problems=_REMOVE_PROBLEMS)
async def remove_task_type(call: Call, body: TaskTypeActionRequest) -> ResponseEnvelope:
    """Remove a type without unfinished tasks: it is listed no more and takes no tasks.

    Ended tasks are kept for their retention. They are seen again once the type is registered again.
    """
    context = get_task_context(call)
    found = await context.types.require_type(body.task_type, call.project_filter)
    task_type = await context.types.reload_type(found.type) or found
    await _require_no_unfinished_tasks(context, task_type)
    await context.open_lane_unless_past((task_type.type, task_type.end_pos))
    is_removed = False
    try:
        # From then on a lane accepts a create only once its sender has changed the version, whatever it knew: what is
        # counted is all that there will be, or else the type is not removed.
        await context.apply_rules_in_open_lanes(task_type.type, task_type.removal_rules)
        await _require_no_unfinished_tasks(context, task_type)
        is_removed = await context.types.remove_type_unless_changed(task_type)
    finally:
        if not is_removed and (kept := await context.types.undo_removal_rules(task_type)):
            await context.apply_rules_in_open_lanes(kept.type, kept.rules)
    if not is_removed:
        message = f"The type {task_type.name!r} was changed meanwhile, or received a task."
        raise Conflict(TYPE_CHANGED, message, "Look at it; try again.")
    await pause_store.delete_pause(call.services.database, build_task_type_subject(task_type.type))
    return ResponseEnvelope()


async def _require_no_unfinished_tasks(context: TaskContext, task_type: CachedTaskType) -> None:
    if unfinished := await count_pending_and_running_tasks(context, task_type):
        raise Conflict(
            TYPE_NOT_EMPTY,
            f"The type {task_type.name!r} has {unfinished} unfinished tasks.",
            "Cancel them or wait for their end, and stop what creates more.",
        )


async def _create_task_or_release_quotas(call: Call, new: NewTask) -> TaskIdText:
    try:
        return await _create_task(call, new)
    except Fault:
        quotas.release_refused_task(call, get_task_context(call).open_tasks)
        raise


async def _create_task(call: Call, new: NewTask) -> TaskIdText:
    context = get_task_context(call)
    types, project_id = context.types, call.project_id
    task_type = types.get_cached_unless_stale(new.task_type, project_id) or await types.require_type(
        new.task_type, project_id
    )
    if new.task_id:
        if await _is_existing_equal_task_or_raise_conflict(context, call, new):
            return new.task_id
        return (await _create_or_find_repeated_create_under_chosen_id(context, task_type, new))[0]
    key = secrets.create_random_token()
    while True:
        task_id = TaskId(key, task_type.name, task_type.end_pos)
        if await _create_in_lane_reopening_it_if_closed(context, task_type, task_id, new, 0) in {
            OperationCode.OK,
            OperationCode.SAME,
        }:
            context.add_to_task_metric(task_type.type, "created")
            return str(task_id)
        task_type = await context.open_next_lane(task_type, task_id.pos)


async def _create_copy_of_ended(call: Call, task_type: CachedTaskType, task_id: str, ended: Task) -> TaskIdText:
    """Create a task equal to one that has ended, and return its id; repeated calls return the same task.

    It counts once against the quotas of the project that puts it back.
    """
    context, is_counted = get_task_context(call), call.project_filter is not None
    content, _ = await context.texts.read_texts(task_id, ended)
    new = NewTask(
        task_type=task_type.name,
        task_id=f"{AGAIN}{task_id}",
        user_id=ended.user_id,
        task_content=content,
        task_priority=ended.priority,
        task_stage=ended.stage,
    )
    if is_counted:
        await quotas.count_new_tasks_within_quotas(call, context.open_tasks, 1)
    is_refused_or_repeated = False
    try:
        copy_id, is_refused_or_repeated = await _create_or_find_repeated_create_under_chosen_id(context, task_type, new)
    except Fault:
        is_refused_or_repeated = True
        raise
    finally:
        if is_counted and is_refused_or_repeated:
            quotas.release_refused_task(call, context.open_tasks)
    return copy_id


async def _create_or_find_repeated_create_under_chosen_id(
    context: TaskContext, task_type: CachedTaskType, new: NewTask
) -> tuple[TaskIdText, bool]:
    """Return the id of the task of a chosen id, and whether an earlier request had claimed that."""
    fields: list[str | int] = [new.user_id, new.priority, new.task_content]
    fields += [new.start_ms] if new.start_time else []
    fields += [new.task_stage] if new.task_stage else []
    digest = hashlib.sha256(msgspec.json.encode(fields)).digest()
    task_id = str(TaskId(secrets.create_random_token(), task_type.name, task_type.end_pos))
    claim = await context.keys.claim_chosen_key_or_get_existing_claim(
        ChosenKeyClaim(task_type.type, new.task_id, task_id, digest)
    )
    is_repeated = claim.task_id != task_id
    if claim.digest != digest:
        raise _build_task_differs_conflict(new.task_id)
    while True:
        parsed = parse_task_id(claim.task_id)
        if parsed is None:
            raise LookupError(f"the key {claim.chosen_key!r} stands for {claim.task_id!r}, which is not a task id")
        code = await _create_in_lane_reopening_it_if_closed(context, task_type, parsed, new, TaskFlags.KEYED)
        # A lane that reports another content compares with what a worker wrote; the digest has been compared above.
        created = {OperationCode.OK, OperationCode.SAME, OperationCode.CONFLICT}
        if code in created or await context.find_in_archive(claim.task_id, task_type):
            context.add_to_task_metric(task_type.type, "created")
            return claim.task_id, is_repeated
        # The lane does not have it and is full, so it never will.
        task_type = await context.open_next_lane(task_type, parsed.pos)
        claim = await context.keys.reassign_chosen_key(
            claim, str(TaskId(parsed.key, task_type.name, task_type.end_pos))
        )


async def _is_existing_equal_task_or_raise_conflict(context: TaskContext, call: Call, new: NewTask) -> bool:
    """Return whether the given id is that of an existing task.

    Raises:
        Conflict: It is, and the task differs.
    """
    parsed = parse_task_id(new.task_id)
    task_type = parsed and await context.find_type_of_task(parsed, call.project_id)
    is_of_type = parsed and task_type and task_type.name == new.task_type
    task = await context.find_in_lane_or_archive(parsed, task_type) if parsed and task_type and is_of_type else None
    if task is None:
        return False
    content, _ = await context.texts.read_texts(new.task_id, task)
    was_held = task.lease > 0 or task.crt_retry_num > 0 or task.modify_time > task.create_time
    start = task.order_time + (0 if task.flags & TaskFlags.LATER else task.priority * SECOND)
    sent = (new.task_content, new.task_stage, max(new.start_ms, task.create_time))
    is_same = was_held or (content, task.stage, start) == sent
    if (task.user_id, task.priority) != (new.user_id, new.priority) or not is_same:
        raise _build_task_differs_conflict(new.task_id)
    return True


async def _create_in_lane_reopening_it_if_closed(
    context: TaskContext, task_type: CachedTaskType, task_id: TaskId, new: NewTask, flags: int
) -> OperationCodeText:
    """Create a task in its lane; start the lane if it should be open and does not exist."""
    content = new.task_content
    if is_too_long_for_lane(content):
        content, flags = await context.texts.write_and_get_reference(str(task_id), content), flags | TaskFlags.CONTENT
    task = CreateOperation(task_id.key, new.user_id, content, new.priority, new.task_stage, flags, new.start_ms)
    lane = (task_type.type, task_id.pos)
    try:
        return await context.create_task_unless_type_removed(lane, task_type, task)
    except LaneClosed:
        await context.open_lane_unless_past(lane)
        try:
            return await context.create_task_unless_type_removed(lane, task_type, task)
        except LaneClosed:
            return OperationCode.FULL


def _build_task_differs_conflict(task_id: str) -> Conflict:
    return Conflict(
        TASK_DIFFERS,
        f"There is a task under the id {task_id!r} with another user, priority, content, stage or start.",
        "Send what was sent first, or choose another id.",
    )


async def _cancel_task(call: Call, task_id: str) -> TaskIdText:
    context = get_task_context(call)
    parsed, task_type = await context.parse_task_id_and_type(call, task_id)
    code = await context.change_task(task_type, parsed, CancelOperation(parsed.key))
    if code == OperationCode.MISSING:
        late = SetOperation(parsed.key, TaskStatus.CANCELLED)
        code = await context.get_code_for_archived_task(task_id, task_type, late)
    raise_if_code_is_failure(code, task_id)
    context.add_to_task_metric(task_type.type, "cancelled")
    return task_id


async def _put_back_task_or_copy_ended(call: Call, item: TaskToPutBack) -> TaskIdText:
    context = get_task_context(call)
    task_id = item.task_id
    parsed, task_type = await context.parse_task_id_and_type(call, task_id)
    task = await context.find_in_lane_or_archive(parsed, task_type)
    if task is None:
        raise build_unknown_task_fault(task_id)
    if task.status == TaskStatus.PENDING:
        raise Conflict(SET_REFUSED, f"The task {task_id} is in its queue already.", "There is nothing to put back.")
    if task.status != TaskStatus.RUNNING:
        # A caller that names a lease means a running task; it has ended meanwhile and must not be done again.
        if item.lease is not None:
            raise_if_code_is_failure(OperationCode.FINAL, task_id)
        return await _create_copy_of_ended(call, task_type, task_id, task)
    setting = SetOperation(parsed.key, TaskStatus.PENDING, item.lease)
    code = await context.change_task(task_type, parsed, setting)
    if code == OperationCode.MISSING and await context.find_in_archive(task_id, task_type):
        return await _put_back_task_or_copy_ended(call, item)  # it has ended meanwhile
    raise_if_code_is_failure(code, task_id)
    context.add_to_task_metric(task_type.type, "thrown_back")
    return task_id


async def _register_type(call: Call, body: RegisterTaskTypeRequest) -> ResponseEnvelope:
    context = get_task_context(call)
    task_type = await context.types.create_or_update_type(call.project_id, body.task_type_data, call.quotas.task_types)
    await context.open_lane_unless_past((task_type.type, task_type.end_pos))
    await context.apply_rules_in_open_lanes(task_type.type, task_type.rules)
    return ResponseEnvelope()


async def _set_type_paused(call: Call, body: TaskTypeActionRequest, *, paused: bool) -> ResponseEnvelope:
    context = get_task_context(call)
    task_type = await context.types.set_paused(call.project_filter, body.task_type, paused=paused)
    await _save_or_remove_pause(call, task_type, body)
    await context.apply_rules_in_open_lanes(task_type.type, task_type.rules)
    return ResponseEnvelope()


async def _save_or_remove_pause(call: Call, task_type: CachedTaskType, body: TaskTypeActionRequest) -> None:
    """Keep who paused a type and why, as long as it is paused."""
    database, subject = call.services.database, build_task_type_subject(task_type.type)
    if task_type.paused:
        await pause_store.save_pause(database, subject, body.who, body.reason)
    else:
        await pause_store.delete_pause(database, subject)
    call.request.app[pauses.CACHE].invalidate_cached_pauses()
