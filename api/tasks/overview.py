"""What the overview and the console read: workload, types with counters, lanes, and pages of tasks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, Self

from aiohttp import web

from api.http.routes import Call, RouteAccess
from api.tasks import responses
from api.tasks.context import TaskContext, get_task_context, routes
from api.tasks.lane_caches import get_now_ms
from api.tasks.queries import LANES_AT_A_TIME, search_lanes_in_order_until_enough
from api.tasks.requests import BrowseTasksQuery, FindTasksQuery, TaskLanesQuery, TaskTypesPageQuery
from api.tasks.responses import (
    LanePageResponse,
    LaneResponse,
    TaskFiguresPageResponse,
    TaskIdsResponse,
    TaskPageResponse,
    TaskTypeFiguresResponse,
    build_success_response,
)
from api.tasks.storage import TYPE_AMBIGUOUS, TYPE_UNKNOWN, CachedTaskType
from domain.faults import Conflict, Invalid, Missing
from domain.tasks.messages import FINAL, Task, TaskSearch
from domain.tasks.names import POS_MAX, build_lane_workflow_id, parse_task_id
from domain.workload import WorkByProject
from infra.settings import Settings
from services.services import Services
from stores.tasks import archive, contents, lanes
from stores.tasks.archive import ArchiveFilter
from stores.tasks.lanes import OpenLaneRow
from stores.tasks.types import TaskTypeCounts

UNIT: Final = "tasks"
HAS_PROJECTS: Final = True
STANDSTILL_SECONDS: Final = 900

LANES_PER_PAGE: Final = 32
"""Lanes searched for one page, which may be shorter for that: each takes some milliseconds."""
FOUND_MAX: Final = 100

_LATEST: Final = 10**15
"""Milliseconds: later than any create time."""
_HIGHEST_KEY: Final = "f" * 32
_CURSOR_INVALID: Final = "cursor_invalid"
_LANE_CURSOR: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})\.([0-9a-f]{32})")
_ARCHIVE_CURSOR: Final = re.compile(r"([0-9]{1,18})\.(\S{1,160})")


def get_failure_count_period(settings: Settings) -> timedelta:
    """Return how long a failed task is counted: one day."""
    return lanes.FAILED_WITHIN


def build_workload_counter(services: Services) -> Callable[[], Awaitable[WorkByProject]]:
    """Return a function that counts the tasks of every project."""
    return partial(lanes.count_workloads, services.database)


class TaskPageItem(NamedTuple):
    """A task of a page."""

    task_id: str
    task: Task
    archived: bool = False


@dataclass(frozen=True, slots=True)
class TaskPageCursor:
    """Where a page begins: behind a task of a lane, or, with position 0, behind one of the archive."""

    pos: int
    create_time: int = _LATEST
    key: str = ""
    """In the archive the task's id."""

    @classmethod
    def parse(cls, query: BrowseTasksQuery) -> Self:
        """Parse the cursor of a query.

        Raises:
            Invalid: The cursor has another form.
        """
        if not query.cursor:
            return cls(0) if query.archived else cls(POS_MAX)
        if match := _LANE_CURSOR.fullmatch(query.cursor):
            return cls(int(match[1]), int(match[2]), match[3])
        if (match := _ARCHIVE_CURSOR.fullmatch(query.cursor)) and parse_task_id(match[2]):
            return cls(0, int(match[1]), match[2])
        raise Invalid(
            _CURSOR_INVALID,
            "This cursor is not a next_cursor of this list.",
            "Send next_cursor of the previous page as it is.",
        )

    @classmethod
    def from_item(cls, item: TaskPageItem) -> Self:
        """Begin behind a task."""
        parsed = parse_task_id(item.task_id)
        if item.archived or parsed is None:
            return cls(0, item.task.create_time, item.task_id)
        return cls(parsed.pos, item.task.create_time, parsed.key)

    def __str__(self) -> str:
        return f"{self.pos}.{self.create_time}.{self.key}" if self.pos else f"{self.create_time}.{self.key}"


@routes.get(
    "/v1/browse_tasks",
    access=RouteAccess.PROJECTS,
    problems={TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict, _CURSOR_INVALID: Invalid},
)
async def browse_tasks(call: Call, query: BrowseTasksQuery) -> TaskPageResponse | web.Response:
    """List the tasks of a type, a page at a time.

    Tasks of the newest lane come first, tasks in the archive last; within each the newest first. A task that ends
    between two pages may appear twice, but none is left out. A page may be shorter than the limit without being the
    last.
    """
    context = get_task_context(call)
    task_type = await context.types.require_type(query.task_type, call.project_filter)
    items, cursor = await _read_task_page(context, task_type, query, TaskPageCursor.parse(query))
    texts = await asyncio.gather(*(context.texts.read_texts(item.task_id, item.task) for item in items))
    tasks = [
        responses.build_task_state_fields(item.task_id, item.task, each, task_type, archived=item.archived)
        for item, each in zip(items, texts, strict=True)
    ]
    return build_success_response(task_list=tasks, next_cursor=cursor)


async def _read_task_page(
    context: TaskContext, task_type: CachedTaskType, query: BrowseTasksQuery, start: TaskPageCursor
) -> tuple[list[TaskPageItem], str]:
    """Read a page; return its tasks, and the cursor of the next page."""
    count = query.limit + 1
    positions = await context.heads.list_open_lanes(task_type.type) if start.pos else []
    positions = [pos for pos in positions if pos <= start.pos]
    searches = [
        (pos, _build_search(query, start if pos == start.pos else TaskPageCursor(pos), count))
        for pos in positions[:LANES_PER_PAGE]
    ]
    permits = asyncio.Semaphore(LANES_AT_A_TIME)
    items = [
        TaskPageItem(*each)
        for each in await search_lanes_in_order_until_enough(context, task_type, searches, count, permits)
    ]
    if len(items) < count:
        if len(positions) > LANES_PER_PAGE:
            return items, str(TaskPageCursor(positions[LANES_PER_PAGE], _LATEST, _HIGHEST_KEY))
        after = TaskPageCursor(0) if start.pos else start
        items += await _read_archived_tasks_of_page(context, task_type, query, after, items, count - len(items))
    page = items[: query.limit]
    return page, str(TaskPageCursor.from_item(page[-1])) if len(items) > query.limit else ""


def _build_search(query: BrowseTasksQuery, start: TaskPageCursor, limit: int) -> TaskSearch:
    return TaskSearch(
        status=query.status or 0,
        stage=query.stage,
        user_id=query.user_id,
        limit=limit,
        before=start.create_time if start.key else 0,
        before_key=start.key,
        with_attempts=False,
    )


async def _read_archived_tasks_of_page(
    context: TaskContext,
    task_type: CachedTaskType,
    query: BrowseTasksQuery,
    start: TaskPageCursor,
    excluded_items: list[TaskPageItem],
    limit: int,
) -> list[TaskPageItem]:
    statuses = [status for status in FINAL if query.status in (None, status)]
    if not statuses or limit <= 0:
        return []
    known = {item.task_id for item in excluded_items}
    after = (start.create_time, start.key)
    # As many more as may be left out: a page that is too short would be taken for the last one.
    rows = await archive.list_archived_task_page(
        context.database, task_type.type, statuses, ArchiveFilter(query.stage, query.user_id), after, limit + len(known)
    )
    return [TaskPageItem(task_id, task, archived=True) for task_id, task in rows if task_id not in known][:limit]


@routes.get("/v1/get_task_figures", access=RouteAccess.PROJECTS)
async def get_task_figures(call: Call, query: TaskTypesPageQuery) -> TaskFiguresPageResponse:
    """List types with the counters of their queues: waiting tasks and for how long, held and failed ones.

    The admin key gets the types of all projects where it names none.
    """
    rows = await get_task_context(call).types.list_type_and_counts_page_plus_one(
        call.project_filter, query.prefix, query.cursor, query.limit
    )
    page = rows[: query.limit]
    return TaskFiguresPageResponse(
        type_list=[_build_figures_response(task_type, counts) for task_type, counts in page],
        next_cursor=f"{page[-1][0].name}/{page[-1][0].project_id}" if len(rows) > query.limit else "",
    )


def _build_figures_response(task_type: CachedTaskType, counts: TaskTypeCounts) -> TaskTypeFiguresResponse:
    figures = asdict(counts)
    first = figures.pop("next_order_time")
    due_seconds = max(0, get_now_ms() - first) / 1000 if first else 0.0
    # The first task may have become due since its lane counted.
    figures["due"] = max(figures["due"], int(due_seconds > 0))
    return TaskTypeFiguresResponse(
        **responses.build_task_type_response(task_type).model_dump(),
        project_id=task_type.project_id,
        oldest_due_seconds=due_seconds,
        **figures,
    )


@routes.get(
    "/v1/get_task_lanes", access=RouteAccess.PROJECTS, problems={TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict}
)
async def get_task_lanes(call: Call, query: TaskLanesQuery) -> LanePageResponse:
    """List the open lanes of a type with their counters."""
    context = get_task_context(call)
    task_type = await context.types.require_type(query.task_type, call.project_filter)
    rows = await lanes.list_open_lane_page_plus_one(
        context.database, task_type.type, int(query.cursor or 0), query.limit
    )
    page = rows[: query.limit]
    return LanePageResponse(
        lane_list=[_build_lane_response(task_type.type, lane) for lane in page],
        next_cursor=str(page[-1].pos) if len(rows) > query.limit else "",
    )


def _build_lane_response(type_: str, lane: OpenLaneRow) -> LaneResponse:
    others = {
        "workflow_id": build_lane_workflow_id((type_, lane.pos)),
        "full": lane.is_full,
        "next_order_time": _to_seconds(lane.next_order_time),
        "next_lease_end": _to_seconds(lane.next_lease_end),
    }
    copied = {name: getattr(lane, name) for name in LaneResponse.model_fields if name not in others}
    return LaneResponse(**copied, **others)


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


@routes.get("/v1/find_tasks", access=RouteAccess.PROJECTS)
async def find_tasks(call: Call, query: FindTasksQuery) -> TaskIdsResponse:
    """Find the ids of tasks by the `task_id` that their creator chose; one for each type that has it."""
    return TaskIdsResponse(
        task_ids=await contents.list_task_ids_of_chosen_key(
            get_task_context(call).database, query.name, call.project_filter, FOUND_MAX
        )
    )
