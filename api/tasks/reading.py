"""Asking: how a task stands, which tasks there are, and how many; live and archived ones told as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from aiohttp import web

from api.http.routes import Access, Call
from api.tasks import answers, searching
from api.tasks.answers import Counts, FoundTask, FoundTasks, succeeded
from api.tasks.calls import Over
from api.tasks.envelope import TASK_UNKNOWN, TYPE_AMBIGUOUS, TYPE_UNKNOWN
from api.tasks.requests import OfType, One, Wanted
from api.tasks.room import Desk, desk, routes, unknown
from api.tasks.searching import Turns
from api.tasks.types import TaskType
from domain.faults import Conflict, Missing
from domain.tasks.messages import FINAL, Head, Search, Status, Task
from stores.tasks import archive

TYPES_AT_A_TIME: Final = 4
"""Of the database each takes a connection."""

_Found: TypeAlias = dict[str, Task]


@routes.get("/v1/get_task", access=Access.PROJECTS, problems={TASK_UNKNOWN: Missing})
async def get_task(call: Call, query: One) -> FoundTask | web.Response:
    """Tell how a task stands: now, not a while ago; and what became of attempts that did not end it."""
    here = desk(call)
    named, kind = await here.type_of(call, query.task_id)
    # Read anew beside the task: what another process has changed is in force as soon as that was answered.
    live, now = await asyncio.gather(here.find_live(named, kind), here.types.reread(kind.type))
    task = live or await here.archived.get(query.task_id)
    if task is None:
        raise unknown(query.task_id)
    texts = await here.contents.texts(query.task_id, task)
    return succeeded(task_data=answers.followed(query.task_id, task, texts, now or kind, archived=live is None))


@routes.get("/v1/get_task_list", access=Access.PROJECT, problems={TYPE_UNKNOWN: Missing})
async def get_task_list(call: Call, query: Wanted) -> FoundTasks | web.Response:
    """List tasks, the newest first.

    Without a type those of all types of the project.
    """
    here = desk(call)
    if query.task_type is None:
        kinds = await here.types.owned(call.project_id)
    else:
        kinds = [await here.types.get(query.task_type, call.project_id)]
    by_kind = await _search_all(here, kinds, query)
    found = [(kind, *each) for kind, tasks in zip(kinds, by_kind, strict=True) for each in tasks.items()]
    newest = sorted(found, key=lambda each: each[2].create_time, reverse=True)[: query.most]
    texts = await asyncio.gather(*(here.contents.texts(task_id, task) for _, task_id, task in newest))
    return succeeded(
        task_list=[
            answers.shown(task_id, task, each, kind) for (kind, task_id, task), each in zip(newest, texts, strict=True)
        ]
    )


@routes.get(
    "/v1/get_task_counts_by_type",
    access=Access.PROJECTS,
    problems={TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict},
)
async def get_task_counts_by_type(call: Call, query: OfType) -> Counts:
    """Count the tasks of a type."""
    here = desk(call)
    kind = await here.types.get(query.task_type, call.scope)
    turns = searching.turns()

    async def head(pos: int) -> tuple[int, Head | None]:
        async with turns:
            try:
                return pos, await here.lanes.head((kind.type, pos))
            except Over:
                return pos, None

    heads = await asyncio.gather(*map(head, await here.heads.open_lanes(kind.type)))
    live = {pos: head for pos, head in heads if head is not None}
    # A lane counts its tasks as long as it runs, archived ones too; those of a lane that is over are all archived.
    ended = await archive.count(here.database, kind.type, live.keys())
    pending = sum(head.pending for head in live.values())
    running = sum(head.running for head in live.values())
    success = sum(head.success for head in live.values()) + ended.get(Status.SUCCESS, 0)
    failed = sum(head.failed for head in live.values()) + ended.get(Status.FAILED, 0)
    cancelled = sum(head.cancelled for head in live.values()) + ended.get(Status.CANCELLED, 0)
    return Counts(
        task_count=(every := pending + running + success + failed + cancelled),
        counts=every,
        pending=pending,
        running=running,
        success=success,
        failed=failed,
        cancelled=cancelled,
    )


async def _search_all(here: Desk, kinds: Sequence[TaskType], query: Wanted) -> list[_Found]:
    """Tasks of each type that fit; together they take no more turns than one."""
    turns, types = searching.turns(), asyncio.Semaphore(TYPES_AT_A_TIME)

    async def search(kind: TaskType) -> _Found:
        async with types:
            return await _search(here, kind, query, turns)

    return await asyncio.gather(*map(search, kinds))


async def _search(here: Desk, kind: TaskType, query: Wanted, turns: Turns) -> _Found:
    """Tasks of a type that fit. Lanes come first: what they archive meanwhile is found there after that."""
    wanted = Search(status=query.status or 0, stage=query.stage, limit=query.most, with_attempts=False)
    lanes = [(pos, wanted) for pos in await here.heads.open_lanes(kind.type)]
    found: _Found = dict(await searching.in_lanes(here, kind, lanes, query.most, turns))
    statuses = [status for status in FINAL if query.status in (None, 0, status)]
    if statuses:
        archived = await archive.list_newest(here.database, kind.type, statuses, query.stage, query.most)
        found |= dict(archived)
    return found
