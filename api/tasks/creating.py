"""Creating: a task goes to the last lane of its type, and to the next one when that is full.

An id that the caller chose is written down with the id it stands for before a lane hears of the task: whoever sends it
again, to whichever process, gets the same task.
"""

from __future__ import annotations

import hashlib

import msgspec
from aiohttp import web

from api.http.routes import Access, Call
from api.tasks import figures
from api.tasks.answers import Created, Outcomes, succeeded
from api.tasks.calls import Over
from api.tasks.contents import is_long
from api.tasks.envelope import TASK_DIFFERS, TYPE_UNKNOWN
from api.tasks.many import each_of
from api.tasks.requests import Create, CreateMany, NewTask
from api.tasks.room import Desk, desk, routes
from api.tasks.types import TaskType
from domain.faults import Conflict, Missing
from domain.tasks import ids, messages
from domain.tasks.ids import TaskId
from domain.tasks.messages import Code, Refs, Task
from infra import secrets
from stores.tasks.keys import KeyClaim

AGAIN = "again "
"""Before the id of a task that has ended, this is the name of the one that was created in its place."""
_PROBLEMS = {TYPE_UNKNOWN: Missing, TASK_DIFFERS: Conflict}


@routes.post("/v1/create_task", access=Access.PROJECT, problems=_PROBLEMS)
async def create(call: Call, body: Create) -> Created | web.Response:
    """Create a task.

    It is durable when this answers. With a `task_id` of your own the call may be repeated: the same id is the same
    task, however often it is sent and whatever became of it; with another user, priority, content,
    stage or start it is an error.
    """
    return succeeded(task_id=await _create(call, body.task_data))


@routes.post("/v1/create_tasks", access=Access.PROJECT)
async def create_many(call: Call, body: CreateMany) -> Outcomes:
    """Create many tasks.

    As many single requests, in one; each has an outcome of its own.
    """
    return await each_of(body.task_list, lambda new: _create(call, new))


async def _create(call: Call, new: NewTask) -> str:
    here = desk(call)
    kind = here.types.known(new.task_type, call.project_id) or await here.types.get(new.task_type, call.project_id)
    if new.task_id:
        return await _create_once(call, kind, new)
    key = secrets.create_token()
    while True:
        named = TaskId(key, kind.name, kind.end_pos)
        if await _put(here, kind, named, new, 0) in {Code.OK, Code.SAME}:
            figures.tasks(kind.type, "created").inc()
            return str(named)
        kind = await here.open_next(kind, named.pos)


async def _create_once(call: Call, kind: TaskType, new: NewTask) -> str:
    """The task under an id of the caller's: one that we gave, or one that we have written down."""
    here = desk(call)
    if await _is_known(here, call, new):
        return new.task_id
    return await _create_named(here, kind, new)


async def create_again(here: Desk, kind: TaskType, task_id: str, ended: Task) -> str:
    """A new task that is the same as one that has ended; asked for again, the same one."""
    content, _ = await here.contents.texts(task_id, ended)
    return await _create_named(
        here,
        kind,
        NewTask(
            task_type=kind.name,
            task_id=f"{AGAIN}{task_id}",
            user_id=ended.user_id,
            task_content=content,
            task_priority=ended.priority,
            task_stage=ended.stage,
        ),
    )


async def _create_named(here: Desk, kind: TaskType, new: NewTask) -> str:
    said: list[str | int] = [new.user_id, new.priority, new.task_content]
    said += [new.start_ms] if new.start_time else []
    said += [new.task_stage] if new.task_stage else []
    digest = hashlib.sha256(msgspec.json.encode(said)).digest()
    task_id = str(TaskId(secrets.create_token(), kind.name, kind.end_pos))
    claim = await here.keys.claim(KeyClaim(kind.type, new.task_id, task_id, digest))
    if claim.digest != digest:
        raise _differs(new.task_id)
    while True:
        named = ids.read(claim.task_id)
        if named is None:
            raise LookupError(f"{claim.task_id!r} stands under a key and is no id of ours")
        code = await _put(here, kind, named, new, Refs.KEYED)
        # Where the lane sees another content, a worker has changed it: the digest tells what was asked for.
        if code in {Code.OK, Code.SAME, Code.CONFLICT} or await here.archived.get(claim.task_id):
            figures.tasks(kind.type, "created").inc()
            return claim.task_id
        # It is not there, and as the lane takes no more, it never will be.
        kind = await here.open_next(kind, named.pos)
        claim = await here.keys.move(claim, str(TaskId(named.key, kind.name, kind.end_pos)))


async def _is_known(here: Desk, call: Call, new: NewTask) -> bool:
    """Whether this is the id of a task that is there already.

    Raises:
        Conflict: It is there, and another one.
    """
    named = ids.read(new.task_id)
    kind = named and await here.type_with(named, call.project_id)
    task = await here.find(named, kind) if named and kind and kind.name == new.task_type else None
    if task is None:
        return False
    content, _ = await here.contents.texts(new.task_id, task)
    is_touched = task.lease > 0 or task.crt_retry_num > 0 or task.modify_time > task.create_time
    is_same = is_touched or (content, task.stage) == (new.task_content, new.task_stage)
    if (task.user_id, task.priority) != (new.user_id, new.priority) or not is_same:
        raise _differs(new.task_id)
    return True


async def _put(here: Desk, kind: TaskType, named: TaskId, new: NewTask, refs: int) -> str:
    """Have a lane take a task, if it takes any more; it is started if it should be there and is not."""
    content = new.task_content
    if is_long(content):
        content, refs = await here.contents.put(str(named), content), refs | Refs.CONTENT
    task = messages.NewTask(named.key, new.user_id, content, new.priority, new.task_stage, refs, new.start_ms)
    lane = (kind.type, named.pos)
    try:
        return await here.lanes.create(lane, kind.rules, task)
    except Over:
        await here.open(lane)
    try:
        return await here.lanes.create(lane, kind.rules, task)
    except Over:
        return Code.FULL


def _differs(task_id: str) -> Conflict:
    return Conflict(
        TASK_DIFFERS,
        f"There is a task under the id {task_id!r} with another user, priority, content, stage or start.",
        "Send what was sent first, or choose another id.",
    )
