"""Holding: a worker gets tasks that are due, from the lanes whose turn it is, or waits for some."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from api.http import parsing
from api.http.problems import FieldProblem
from api.http.routes import Access, Call
from api.tasks import answers, figures
from api.tasks.answers import HeldTasks, succeeded
from api.tasks.calls import Over
from api.tasks.envelope import TYPE_UNKNOWN
from api.tasks.lanes import NotTaken
from api.tasks.requests import Hold, HoldQuery
from api.tasks.room import Desk, desk, routes
from api.tasks.types import TaskType
from domain.faults import Missing
from domain.tasks import ids, messages
from domain.tasks.ids import TaskId
from domain.tasks.messages import Code, Setting, Status, Task
from infra import log

LANES_MAX = 8
"""So many lanes are asked for one caller: each takes some milliseconds."""
LOOK_SECONDS = 1.0
"""How often a waiting caller's queue is looked at though nobody has said anything."""
_PROBLEMS = {TYPE_UNKNOWN: Missing}
_log = log.get(__name__)


@routes.post("/v1/hold_tasks", access=Access.PROJECT, problems=_PROBLEMS)
async def hold_tasks(call: Call, body: Hold, query: HoldQuery) -> HeldTasks | web.Response:
    """Hold tasks that are due.

    They are yours until `lease_end`: say by then what became of them, or send a heartbeat. After that they are given to
    others, and count as failed once more; if you hang up before the answer they go back at once. With `wait` the answer
    comes as soon as a task is due, or when the time is over; an empty list is no error.
    """
    return await _hold(call, _merge(body, query))


@routes.post("/v1/hold_task", access=Access.PROJECT, problems=_PROBLEMS)
async def hold_task(call: Call, body: Hold, query: HoldQuery) -> HeldTasks | web.Response:
    """Hold tasks that are due; the same as `hold_tasks`."""
    return await _hold(call, _merge(body, query))


def _merge(body: Hold, query: HoldQuery) -> Hold:
    """What a body and a query ask together; flowSvr's client says all in both.

    Raises:
        Refusal: They differ, or neither names a type.
    """
    sent = {name: (getattr(body, name), getattr(query, name)) for name in HoldQuery.model_fields}
    errors = [
        FieldProblem(path=name, message=f"the body says {said!r} and the query {asked!r}; say it once.")
        for name, (said, asked) in sent.items()
        if None not in (said, asked) and said != asked
    ]
    if body.task_type is None and query.task_type is None:
        errors.append(FieldProblem(path="task_type", message="this field is missing; add it."))
    if errors:
        parsing.reject_fields("request", errors)
    return body.model_copy(update={name: said if said is not None else asked for name, (said, asked) in sent.items()})


async def _hold(call: Call, body: Hold) -> web.Response:
    here = desk(call)
    type_ = body.task_type or ""
    until = time.monotonic() + min(body.wait, call.services.settings.tasks.wait_max_seconds)
    if body.wait:
        call.lift_time_limit()
    while True:
        kind = here.types.known(type_, call.project_id) or await here.types.get(type_, call.project_id)
        limit = min(body.limit or kind.schedule_limit, kind.schedule_limit)
        tasks = await _take(here, kind, limit)
        left = until - time.monotonic()
        if tasks or left <= 0 or _has_gone(call):
            break
        await here.heads.news(kind.type, min(left, LOOK_SECONDS))
    if tasks and _has_gone(call):
        await _give_back(here, kind, tasks)
        tasks = []
    if tasks:
        figures.tasks(kind.type, "held").inc(len(tasks))
    return succeeded(task_list=await _told(here, kind, tasks))


async def _take(here: Desk, kind: TaskType, limit: int) -> list[tuple[str, Task]]:
    """Up to so many tasks, with their ids: those of the lane that is first in turn, then of the next."""
    taken: list[tuple[str, Task]] = []
    if kind.rules.paused:
        return taken
    await here.heads.refresh(kind.type)
    asked: set[int] = set()
    while (wanted := limit - len(taken)) and len(asked) < LANES_MAX:
        pos = here.heads.first_due(kind.type, asked)
        if pos is None:
            break
        asked.add(pos)
        try:
            with here.heads.promised(kind.type, pos, wanted):
                tasks = await here.lanes.hold((kind.type, pos), kind.rules, messages.Hold(wanted))
        except Over:
            here.heads.forget(kind.type, pos)
        except NotTaken:
            # What other lanes gave is the caller's already.
            if taken:
                break
            raise
        else:
            taken += [(str(TaskId(task.key, kind.name, pos)), task) for task in tasks]
    return taken


async def _give_back(here: Desk, kind: TaskType, tasks: list[tuple[str, Task]]) -> None:
    """Put tasks back whose caller went away while they were taken: they have not been begun, and nothing has failed."""
    named = [(task, ids.read(task_id)) for task_id, task in tasks]
    outcomes = await asyncio.gather(
        *(
            here.lanes.change((kind.type, id_.pos), kind.rules, Setting(id_.key, Status.PENDING, task.lease))
            for task, id_ in named
            if id_ is not None
        ),
        return_exceptions=True,
    )
    # What cannot be put back comes back when its lease is over.
    _log.info("hold_given_back", type=kind.type, tasks=len(tasks), failed=sum(each != Code.OK for each in outcomes))


async def _told(here: Desk, kind: TaskType, tasks: list[tuple[str, Task]]) -> list[dict[str, Any]]:
    if any(task.refs for _, task in tasks):
        texts = await asyncio.gather(*(here.contents.texts(task_id, task) for task_id, task in tasks))
    else:
        texts = [(task.content, task.log) for _, task in tasks]
    return [answers.held(task_id, task, each, kind) for (task_id, task), each in zip(tasks, texts, strict=True)]


def _has_gone(call: Call) -> bool:
    """Whether the caller does not listen any more: tasks that it got would lie until their lease is over."""
    transport = call.request.transport
    return transport is None or transport.is_closing()
