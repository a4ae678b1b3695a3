"""Setting: what workers say of the tasks that they hold, that they are still at it, and what nobody needs any more."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from api.http.routes import Access, Call
from api.tasks import creating, figures
from api.tasks.answers import Created, Outcomes, succeeded
from api.tasks.calls import Over
from api.tasks.contents import is_long
from api.tasks.envelope import SET_REFUSED, TASK_UNKNOWN
from api.tasks.lanes import Cancelling
from api.tasks.many import each_of
from api.tasks.requests import Back, Beats, Cancel, Held, Named, PutBack, Result, Set, SetMany
from api.tasks.room import Desk, desk, routes, unknown
from api.tasks.types import TaskType
from domain.faults import Conflict, Missing
from domain.tasks.book import code_of_late
from domain.tasks.ids import TaskId
from domain.tasks.messages import Beat, Code, Refs, Setting, Status
from domain.tasks.unleased import UnleasedResult, judge

_PROBLEMS = {TASK_UNKNOWN: Missing, SET_REFUSED: Conflict}
HOLDERS_MAX = 3
"""So often a task may change hands while its result is looked at."""
_EVENTS = {1: "thrown_back", 2: "kept", 3: "succeeded", 4: "failed"}
_WHY = {
    Code.FINAL: "has ended already, and nothing changes that",
    Code.STALE: "is not held under this lease any more: its time was over, or it was never given out",
    Code.NO_ROOM: "has no room for so long a text right now",
    Code.NO_LEASE: "is of a type that takes no result without a lease",
}
_REMEDIES = {Code.NO_LEASE: "Send the lease that hold_tasks gave with the task."}


@routes.post("/v1/set_task", access=Access.PROJECT, problems=_PROBLEMS)
async def set_task(call: Call, body: Set) -> Created | web.Response:
    """Say what became of a held task.

    Status 3 and 4 end it. Status 1 throws it back: with a higher `crt_retry_num` it has failed and waits as the type's
    retries say, or ends as failed after the last; else it goes on to its next stage, at the queue's tail. Status 2
    keeps it and begins the lease anew. Fields that are left out stay. Without a `lease` you are taken for the holder,
    but for what flowSvr's own client says too late, where that can be told from its log and its count of retries.
    """
    return succeeded(task_id=await _set(call, body.task_data))


@routes.post("/v1/set_tasks", access=Access.PROJECT)
async def set_many(call: Call, body: SetMany) -> Outcomes:
    """Say what became of many tasks; each has an outcome of its own."""
    return await each_of(body.task_list, lambda result: _set(call, result))


@routes.post("/v1/heartbeat_tasks", access=Access.PROJECT)
async def heartbeat(call: Call, body: Beats) -> Outcomes:
    """Say that you are still at it: the leases of these tasks begin anew.

    An outcome other than 0 tells that the task is not yours any more, as when it was cancelled.
    """
    return await each_of(body.task_list, lambda held: _beat(call, held))


@routes.post("/v1/cancel_task", access=Access.PROJECTS, problems=_PROBLEMS)
async def cancel(call: Call, body: Cancel) -> Created | web.Response:
    """Cancel a task.

    It ends as cancelled, at once; a worker that holds it finds out at its next heartbeat or when it sets the task.
    """
    return succeeded(task_id=await _cancel(call, body.task_id))


@routes.post("/v1/cancel_tasks", access=Access.PROJECTS)
async def cancel_many(call: Call, body: Named) -> Outcomes:
    """Cancel many tasks; each has an outcome of its own."""
    return await each_of(body.task_ids, lambda task_id: _cancel(call, task_id))


@routes.post("/v1/put_back_tasks", access=Access.PROJECTS)
async def put_back(call: Call, body: PutBack) -> Outcomes:
    """Put many tasks back into their queues; each has an outcome of its own, with the id under which it waits then.

    One that is held is taken from its holder and goes to the queue's tail, without counting as failed. One that has
    ended stays as it is, for good: a new task is created that is the same as it, with the content and the stage that it
    had last. Putting it back again answers that one. With a `lease` a task that has ended is refused.
    """
    return await each_of(body.task_list, lambda task: _put_back(call, task))


async def _cancel(call: Call, task_id: str) -> str:
    here = desk(call)
    named, kind = await here.type_of(call, task_id)
    code = await _change(here, kind, named, Cancelling(named.key))
    if code == Code.MISSING:
        code = await _code_of_ended(here, task_id, Setting(named.key, Status.CANCELLED))
    _check(code, task_id)
    figures.tasks(kind.type, "cancelled").inc()
    return task_id


async def _put_back(call: Call, wanted: Back) -> str:
    here = desk(call)
    named, kind = await here.type_of(call, wanted.task_id)
    task = await here.find(named, kind)
    if task is None:
        raise unknown(wanted.task_id)
    if task.status == Status.PENDING:
        raise Conflict(SET_REFUSED, f"The task {wanted.task_id} waits in its queue.", "There is nothing to put back.")
    if task.status != Status.RUNNING:
        # Who names a lease gives back a task that they held: somebody has ended it since, and it is not done again.
        if wanted.lease is not None:
            _check(Code.FINAL, wanted.task_id)
        return await creating.create_again(here, kind, wanted.task_id, task)
    thrown_back = Setting(named.key, Status.PENDING, wanted.lease)
    _check(await _change(here, kind, named, thrown_back), wanted.task_id)
    figures.tasks(kind.type, "thrown_back").inc()
    return wanted.task_id


async def _set(call: Call, result: Result) -> str:
    here = desk(call)
    named, kind = await here.type_of(call, result.task_id)
    if result.task_type and result.task_type != named.name:
        raise unknown(result.task_id)
    setting = Setting(
        named.key,
        result.status,
        lease=result.lease,
        crt_retry_num=result.crt_retry_num,
        stage=result.task_stage,
        content=result.task_content,
        log=result.schedule_log,
        is_unleased=result.lease is None,
    )
    if result.lease is None and kind.lease_required:
        code: str = Code.NO_LEASE
    elif result.lease is None and result.is_of_original:
        code = await _set_unleased(here, kind, named, setting, result)
    else:
        code = await _write(here, kind, named, setting)
    if code == Code.MISSING:
        code = await _code_of_ended(here, result.task_id, setting)
    _check(code, result.task_id)
    figures.tasks(kind.type, _EVENTS[result.status]).inc()
    return result.task_id


async def _set_unleased(here: Desk, kind: TaskType, named: TaskId, setting: Setting, result: Result) -> str:
    """Set a task for a client that knows no leases, unless its log tells that the word is not the holder's.

    The task is looked at first, and set only under the lease that it had then: who holds it later is not hit.
    """
    said = UnleasedResult(
        status=result.status,
        crt_retry_num=result.crt_retry_num or 0,
        stage=result.task_stage,
        log=result.schedule_log or "",
        is_over=result.order_time not in (None, 0),
    )
    for _ in range(HOLDERS_MAX):
        task = await here.find_live(named, kind)
        if task is None:
            return Code.MISSING
        _, log = await here.contents.texts(result.task_id, task)
        verdict = judge(said, task, log)
        if verdict == Code.SAME:
            return verdict
        if task.status != Status.RUNNING:
            return await _write(here, kind, named, setting)
        if verdict == Code.STALE:
            return verdict
        setting.lease = task.lease
        code = await _write(here, kind, named, setting)
        if code != Code.STALE:
            return code
    return Code.STALE


async def _write(here: Desk, kind: TaskType, named: TaskId, setting: Setting) -> str:
    """Have a lane set a task; where it has no room for the texts, they are written down elsewhere."""
    task_id = str(named)
    await _refer(here, task_id, setting, is_long)
    code = await _change(here, kind, named, setting)
    if code == Code.NO_ROOM:
        await _refer(here, task_id, setting, bool)
        code = await _change(here, kind, named, setting)
    return code


async def _beat(call: Call, held: Held) -> str:
    here = desk(call)
    named, kind = await here.type_of(call, held.task_id)
    code = await _change(here, kind, named, Beat(named.key, held.lease))
    if code == Code.MISSING and await here.archived.get(held.task_id):
        code = Code.FINAL
    _check(code, held.task_id)
    return held.task_id


async def _change(here: Desk, kind: TaskType, named: TaskId, wish: Setting | Beat | Cancelling) -> str:
    try:
        return await here.lanes.change((kind.type, named.pos), kind.rules, wish)
    except Over:
        return Code.MISSING


async def _refer(here: Desk, task_id: str, setting: Setting, is_due: Callable[[str], bool]) -> None:
    """Write texts down that go by reference, and put the references in their place."""
    if setting.content is not None and not setting.refs & Refs.CONTENT and is_due(setting.content):
        setting.content = await here.contents.put(task_id, setting.content)
        setting.refs |= Refs.CONTENT
    if setting.log is not None and not setting.refs & Refs.LOG and is_due(setting.log):
        setting.log = await here.contents.put(task_id, setting.log)
        setting.refs |= Refs.LOG


async def _code_of_ended(here: Desk, task_id: str, setting: Setting) -> str:
    """What is told of a task that its lane has let go of: a set whose answer got lost may come again."""
    ended = await here.archived.get(task_id)
    if ended is None:
        return Code.MISSING
    return code_of_late(ended, setting)


def _check(code: str, task_id: str) -> None:
    """Raise what the caller is told, if it is not that all is well."""
    if code == Code.MISSING:
        raise unknown(task_id)
    if code in _WHY:
        raise Conflict(
            SET_REFUSED, f"The task {task_id} {_WHY[code]}.", _REMEDIES.get(code, "Leave it, and hold another one.")
        )
