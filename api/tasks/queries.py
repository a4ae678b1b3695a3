"""Routes that read tasks: one, lists, and counts. Tasks in lanes and in the archive are combined."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from aiohttp import web
from msgspec.structs import replace

from api.http.routes import Call, RouteAccess
from api.tasks import responses
from api.tasks.context import TaskContext, build_unknown_task_fault, get_task_context, routes
from api.tasks.requests import GetTaskQuery, ListTasksQuery, TaskTypeQuery
from api.tasks.responses import (
    TASK_UNKNOWN,
    GetTaskResponse,
    TaskCountsResponse,
    TaskListResponse,
    build_success_response,
)
from api.tasks.storage import TYPE_AMBIGUOUS, TYPE_UNKNOWN, CachedTaskType
from domain.faults import Conflict, Missing
from domain.tasks.messages import FINAL, REPLY_MAX_BYTES, LaneHead, Task, TaskSearch, TaskStatus
from domain.tasks.names import TaskId
from domain.tasks.state import compute_task_snapshot_bytes
from stores.tasks import archive
from stores.tasks.archive import ArchiveFilter
from workflows.tasks.handle import LaneClosed

TYPES_AT_A_TIME: Final = 4
"""Types searched at a time for one request: each takes a database connection."""
LANES_AT_A_TIME: Final = 16
"""Lanes queried at a time for one request: each takes some milliseconds and returns up to 1 MB."""

CUT_REPLY_BYTES: Final = REPLY_MAX_BYTES - 4_000
"""A reply with fewer bytes of tasks has all that match: one more would have fitted."""

LaneSearch: TypeAlias = tuple[int, TaskSearch]
"""A position, and the search of its lane."""
_Tasks: TypeAlias = dict[str, Task]


@routes.get("/v1/get_task", access=RouteAccess.PROJECTS, problems={TASK_UNKNOWN: Missing})
async def get_task(call: Call, query: GetTaskQuery) -> GetTaskResponse | web.Response:
    """Return the current state of a task, and the attempts that did not end it."""
    context = get_task_context(call)
    parsed, task_type = await context.parse_task_id_and_type(call, query.task_id)
    # The type is read again, so that a change that another process has confirmed is visible.
    live, current = await asyncio.gather(
        context.find_in_lane(parsed, task_type), context.types.reload_type(task_type.type)
    )
    task = live or await context.find_in_archive(query.task_id, task_type)
    if task is None:
        raise build_unknown_task_fault(query.task_id)
    texts = await context.texts.read_texts(query.task_id, task)
    details = responses.build_task_details_fields(
        query.task_id, task, texts, current or task_type, archived=live is None
    )
    return build_success_response(task_data=details)


@routes.get("/v1/get_task_list", access=RouteAccess.PROJECT, problems={TYPE_UNKNOWN: Missing})
async def get_task_list(call: Call, query: ListTasksQuery) -> TaskListResponse | web.Response:
    """List tasks, newest first.

    Without a type, those of all types of the project.
    """
    context = get_task_context(call)
    if query.task_type is None:
        types = await context.types.read_project_types_from_database(call.project_id)
    else:
        types = [await context.types.require_type(query.task_type, call.project_id)]
    by_type = await _search_types(context, types, query)
    found = [(task_type, *item) for task_type, tasks in zip(types, by_type, strict=True) for item in tasks.items()]
    newest = sorted(found, key=lambda item: item[2].create_time, reverse=True)[: query.effective_limit]
    texts = await asyncio.gather(*(context.texts.read_texts(task_id, task) for _, task_id, task in newest))
    return build_success_response(
        task_list=[
            responses.build_task_fields(task_id, task, each, task_type)
            for (task_type, task_id, task), each in zip(newest, texts, strict=True)
        ]
    )


@routes.get(
    "/v1/get_task_counts_by_type",
    access=RouteAccess.PROJECTS,
    problems={TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict},
)
async def get_task_counts_by_type(call: Call, query: TaskTypeQuery) -> TaskCountsResponse:
    """Count the tasks of a type."""
    context = get_task_context(call)
    task_type = await context.types.require_type(query.task_type, call.project_filter)
    live = await _read_heads(context, task_type)
    # A running lane counts its archived tasks as well; all tasks of a closed lane are archived.
    ended = await archive.count_ended_by_status(context.database, task_type.type, live.keys())
    pending = sum(head.pending for head in live.values())
    running = sum(head.running for head in live.values())
    success = sum(head.success for head in live.values()) + ended.get(TaskStatus.SUCCESS, 0)
    failed = sum(head.failed for head in live.values()) + ended.get(TaskStatus.FAILED, 0)
    cancelled = sum(head.cancelled for head in live.values()) + ended.get(TaskStatus.CANCELLED, 0)
    return TaskCountsResponse(
        task_count=(total := pending + running + success + failed + cancelled),
        counts=total,
        pending=pending,
        running=running,
        success=success,
        failed=failed,
        cancelled=cancelled,
    )


async def count_pending_and_running_tasks(context: TaskContext, task_type: CachedTaskType) -> int:
    """Count the tasks of a type that wait or are held, as its lanes know them now."""
    return sum(head.pending + head.running for head in (await _read_heads(context, task_type)).values())


async def _read_heads(context: TaskContext, task_type: CachedTaskType) -> dict[int, LaneHead]:
    """Read the heads of all open lanes of a type, by position."""
    permits = asyncio.Semaphore(LANES_AT_A_TIME)

    async def read_head_or_none_if_closed(pos: int) -> tuple[int, LaneHead | None]:
        async with permits:
            try:
                return pos, await context.lanes.read_head((task_type.type, pos))
            except LaneClosed:
                return pos, None

    heads = await asyncio.gather(*map(read_head_or_none_if_closed, await context.heads.list_open_lanes(task_type.type)))
    return {pos: head for pos, head in heads if head is not None}


async def _search_types(context: TaskContext, types: Sequence[CachedTaskType], query: ListTasksQuery) -> list[_Tasks]:
    """Search each type; the limit of concurrent lane queries is shared."""
    lane_permits, type_permits = asyncio.Semaphore(LANES_AT_A_TIME), asyncio.Semaphore(TYPES_AT_A_TIME)

    async def search_type_within_permits(task_type: CachedTaskType) -> _Tasks:
        async with type_permits:
            return await _search_lanes_and_archive_of_type(context, task_type, query, lane_permits)

    return await asyncio.gather(*map(search_type_within_permits, types))


async def _search_lanes_and_archive_of_type(
    context: TaskContext, task_type: CachedTaskType, query: ListTasksQuery, permits: asyncio.Semaphore
) -> _Tasks:
    """Search a type. The archive follows the lanes, so that tasks archived meanwhile are found there."""
    limit = query.effective_limit
    search = TaskSearch(
        status=query.status or 0, stage=query.stage, user_id=query.user_id, limit=limit, with_attempts=False
    )
    searches = [(pos, search) for pos in await context.heads.list_open_lanes(task_type.type)]
    found: _Tasks = dict(await search_lanes_in_order_until_enough(context, task_type, searches, limit, permits))
    statuses = [status for status in FINAL if query.status in (None, 0, status)]
    if statuses:
        filters = ArchiveFilter(query.stage, query.user_id)
        found |= dict(
            await archive.list_archived_task_page(
                context.database, task_type.type, statuses, filters, archive.NEWEST_PLACE, limit
            )
        )
    return found


async def search_lanes_in_order_until_enough(
    context: TaskContext,
    task_type: CachedTaskType,
    searches: Sequence[LaneSearch],
    enough: int,
    permits: asyncio.Semaphore,
) -> list[tuple[str, Task]]:
    """Search lanes in order until there are enough tasks: the first alone, which often suffices, then many at a time.

    Returns:
        Ids and tasks in the order of the searches, possibly more than enough.
    """
    found: list[tuple[str, Task]] = []
    batch, rest = searches[:1], searches[1:]
    while batch and len(found) < enough:
        for tasks in await asyncio.gather(*(_search_lane(context, task_type, *each, permits) for each in batch)):
            found += tasks
        batch, rest = rest[:LANES_AT_A_TIME], rest[LANES_AT_A_TIME:]
    return found


async def _search_lane(
    context: TaskContext, task_type: CachedTaskType, pos: int, search: TaskSearch, permits: asyncio.Semaphore
) -> list[tuple[str, Task]]:
    found: list[Task] = []
    async with permits:
        with suppress(LaneClosed):
            while True:
                tasks = (await context.lanes.search_tasks((task_type.type, pos), search)).tasks
                found += tasks
                left = search.limit - len(tasks)
                if left <= 0 or sum(map(compute_task_snapshot_bytes, tasks)) < CUT_REPLY_BYTES:
                    break
                search = replace(search, limit=left, before=tasks[-1].create_time, before_key=tasks[-1].key)
    return [(str(TaskId(task.key, task_type.name, pos)), task) for task in found]
