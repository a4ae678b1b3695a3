"""Routes that change tasks: set their result, renew their leases, cancel them, and put them back into the queue."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from api.http.routes import Access, Call
from api.tasks import creation
from api.tasks.context import TaskContext, build_task_unknown, get_context, routes
from api.tasks.lanes import CancelOperation
from api.tasks.requests import (
    CancelTaskRequest,
    CancelTasksRequest,
    HeartbeatTasksRequest,
    PutBackTasksRequest,
    SetTaskRequest,
    SetTasksRequest,
    TaskLease,
    TaskResult,
    TaskToPutBack,
)
from api.tasks.responses import (
    SET_REFUSED,
    TASK_UNKNOWN,
    TaskIdResponse,
    TaskOutcomesResponse,
    build_success,
    process_each,
)
from api.tasks.storage import CachedTaskType, is_long
from domain.faults import Conflict, Missing
from domain.tasks.messages import HeartbeatOperation, OperationCode, SetOperation, TaskFlags, TaskStatus
from domain.tasks.names import TaskId
from domain.tasks.state import check_late_set
from domain.tasks.unleased_results import UnleasedResult, check_unleased_result
from workflows.tasks.handle import LaneClosed

_PROBLEMS = {TASK_UNKNOWN: Missing, SET_REFUSED: Conflict}
HOLDERS_MAX = 3
"""How often the holder of a task may change while a result without a lease is checked."""
_EVENTS = {1: "thrown_back", 2: "kept", 3: "succeeded", 4: "failed"}
_REASONS = {
    OperationCode.FINAL: "has ended already, and its state is final",
    OperationCode.STALE: "is not held under this lease: the lease has expired, or was never granted",
    OperationCode.NO_ROOM: "has no room for so long a text right now",
    OperationCode.NO_LEASE: "is of a type that takes no result without a lease",
}
_HINTS = {OperationCode.NO_LEASE: "Send the lease that hold_tasks returned with the task."}
_DEFAULT_HINT = "Stop working on it, and hold another one."


@routes.post("/v1/set_task", access=Access.PROJECT, problems=_PROBLEMS)
async def set_task(call: Call, body: SetTaskRequest) -> TaskIdResponse | web.Response:
    """Set the result of a held task.

    Status 3 and 4 end it. Status 1 returns it to the queue: with a higher `crt_retry_num` the attempt has failed, and
    the task is retried by the rules of its type, or ends as failed after the last retry; otherwise it goes on to its
    next stage, at the end of the queue. Status 2 keeps it running and renews its lease. Fields that are left out keep
    their values. Without a `lease` the result counts as the holder's; a late result of flowSvr's own client is refused
    where its log and its retry count show that it is late.
    """
    return build_success(task_id=await _set(call, body.task_data))


@routes.post("/v1/set_tasks", access=Access.PROJECT)
async def set_tasks(call: Call, body: SetTasksRequest) -> TaskOutcomesResponse:
    """Set the results of many held tasks; each has an outcome of its own."""
    return await process_each(body.task_list, lambda result: _set(call, result))


@routes.post("/v1/heartbeat_tasks", access=Access.PROJECT)
async def heartbeat_tasks(call: Call, body: HeartbeatTasksRequest) -> TaskOutcomesResponse:
    """Renew the leases of held tasks.

    An outcome other than 0 means that you no longer hold the task, for example because it was cancelled.
    """
    return await process_each(body.task_list, lambda lease: _renew(call, lease))


@routes.post("/v1/cancel_task", access=Access.PROJECTS, problems=_PROBLEMS)
async def cancel_task(call: Call, body: CancelTaskRequest) -> TaskIdResponse | web.Response:
    """Cancel a task.

    It ends as cancelled at once; a worker that holds it learns of that at its next heartbeat or when it sets the task.
    """
    return build_success(task_id=await _cancel(call, body.task_id))


@routes.post("/v1/cancel_tasks", access=Access.PROJECTS)
async def cancel_tasks(call: Call, body: CancelTasksRequest) -> TaskOutcomesResponse:
    """Cancel many tasks; each has an outcome of its own."""
    return await process_each(body.task_ids, lambda task_id: _cancel(call, task_id))


@routes.post("/v1/put_back_tasks", access=Access.PROJECTS)
async def put_back_tasks(call: Call, body: PutBackTasksRequest) -> TaskOutcomesResponse:
    """Put many tasks back into their queues; each has an outcome of its own, with the id under which it waits then.

    A held task is taken from its holder and goes to the end of the queue, without counting as failed. An ended task
    stays as it is: a new task is created that equals it, with its last content and stage. Putting it back again returns
    the same new task. With a `lease` a task that has ended is refused.
    """
    return await process_each(body.task_list, lambda task: _put_back(call, task))


async def _cancel(call: Call, task_id: str) -> str:
    context = get_context(call)
    parsed, task_type = await context.find_task_type(call, task_id)
    code = await _change(context, task_type, parsed, CancelOperation(parsed.key))
    if code == OperationCode.MISSING:
        code = await _check_archived(context, task_id, SetOperation(parsed.key, TaskStatus.CANCELLED))
    _raise_for_code(code, task_id)
    context.count(task_type.type, "cancelled")
    return task_id


async def _put_back(call: Call, item: TaskToPutBack) -> str:
    context = get_context(call)
    task_id = item.task_id
    parsed, task_type = await context.find_task_type(call, task_id)
    task = await context.find(parsed, task_type)
    if task is None:
        raise build_task_unknown(task_id)
    if task.status == TaskStatus.PENDING:
        raise Conflict(SET_REFUSED, f"The task {task_id} is in its queue already.", "There is nothing to put back.")
    if task.status != TaskStatus.RUNNING:
        # A caller that names a lease means a running task; it has ended meanwhile and must not be done again.
        if item.lease is not None:
            _raise_for_code(OperationCode.FINAL, task_id)
        return await creation.create_again(context, task_type, task_id, task)
    setting = SetOperation(parsed.key, TaskStatus.PENDING, item.lease)
    _raise_for_code(await _change(context, task_type, parsed, setting), task_id)
    context.count(task_type.type, "thrown_back")
    return task_id


async def _set(call: Call, result: TaskResult) -> str:
    context = get_context(call)
    parsed, task_type = await context.find_task_type(call, result.task_id)
    if result.task_type and result.task_type != parsed.name:
        raise build_task_unknown(result.task_id)
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
    elif result.lease is None and result.is_of_original:
        code = await _set_unleased(context, task_type, parsed, setting, result)
    else:
        code = await _write(context, task_type, parsed, setting)
    if code == OperationCode.MISSING:
        code = await _check_archived(context, result.task_id, setting)
    _raise_for_code(code, result.task_id)
    context.count(task_type.type, _EVENTS[result.status])
    return result.task_id


async def _set_unleased(
    context: TaskContext, task_type: CachedTaskType, task_id: TaskId, setting: SetOperation, result: TaskResult
) -> str:
    """Set a task for a client without leases, unless the task's log shows that the result is not its holder's.

    The task is read first, and set only under the lease that it had then, so a later holder is not affected.
    """
    unleased = UnleasedResult(
        status=result.status,
        crt_retry_num=result.crt_retry_num or 0,
        stage=result.task_stage,
        log=result.schedule_log or "",
        has_ended=result.order_time not in (None, 0),
    )
    for _ in range(HOLDERS_MAX):
        task = await context.find_live(task_id, task_type)
        if task is None:
            return OperationCode.MISSING
        _, log = await context.texts.read_texts(result.task_id, task)
        verdict = check_unleased_result(unleased, task, log)
        if verdict == OperationCode.SAME:
            return verdict
        if task.status != TaskStatus.RUNNING:
            return await _write(context, task_type, task_id, setting)
        if verdict == OperationCode.STALE:
            return verdict
        setting.lease = task.lease
        code = await _write(context, task_type, task_id, setting)
        if code != OperationCode.STALE:
            return code
    return OperationCode.STALE


async def _write(context: TaskContext, task_type: CachedTaskType, task_id: TaskId, setting: SetOperation) -> str:
    """Set a task in its lane; texts that do not fit there are stored outside."""
    await _store_texts(context, task_id, setting, is_long)
    code = await _change(context, task_type, task_id, setting)
    if code == OperationCode.NO_ROOM:
        await _store_texts(context, task_id, setting, bool)
        code = await _change(context, task_type, task_id, setting)
    return code


async def _renew(call: Call, lease: TaskLease) -> str:
    context = get_context(call)
    parsed, task_type = await context.find_task_type(call, lease.task_id)
    code = await _change(context, task_type, parsed, HeartbeatOperation(parsed.key, lease.lease))
    if code == OperationCode.MISSING and await context.archived.get(lease.task_id):
        code = OperationCode.FINAL
    _raise_for_code(code, lease.task_id)
    return lease.task_id


async def _change(
    context: TaskContext,
    task_type: CachedTaskType,
    task_id: TaskId,
    operation: SetOperation | HeartbeatOperation | CancelOperation,
) -> str:
    try:
        return await context.lanes.change((task_type.type, task_id.pos), task_type.rules, operation)
    except LaneClosed:
        return OperationCode.MISSING


async def _store_texts(
    context: TaskContext, task_id: TaskId, setting: SetOperation, must_be_stored: Callable[[str], bool]
) -> None:
    """Store texts outside the lane, and put references in their place."""
    if setting.content is not None and not setting.flags & TaskFlags.CONTENT and must_be_stored(setting.content):
        setting.content = await context.texts.write(str(task_id), setting.content)
        setting.flags |= TaskFlags.CONTENT
    if setting.log is not None and not setting.flags & TaskFlags.LOG and must_be_stored(setting.log):
        setting.log = await context.texts.write(str(task_id), setting.log)
        setting.flags |= TaskFlags.LOG


async def _check_archived(context: TaskContext, task_id: str, setting: SetOperation) -> str:
    """Return the code for a set of a task that is not in its lane: one whose response got lost may be repeated."""
    archived = await context.archived.get(task_id)
    if archived is None:
        return OperationCode.MISSING
    return check_late_set(archived, setting)


def _raise_for_code(code: str, task_id: str) -> None:
    if code == OperationCode.MISSING:
        raise build_task_unknown(task_id)
    if code in _REASONS:
        raise Conflict(SET_REFUSED, f"The task {task_id} {_REASONS[code]}.", _HINTS.get(code, _DEFAULT_HINT))
