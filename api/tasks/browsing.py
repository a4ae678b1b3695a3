"""Browsing: types, lanes and tasks, a page at a time, for whoever looks at queues instead of working on them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Self

from aiohttp import web

from api.http.routes import Access, Call
from api.tasks import answers, searching
from api.tasks.answers import FoundIds, LaneAnswer, LanePage, TaskPage, TypeFigures, TypePage, succeeded
from api.tasks.envelope import TYPE_AMBIGUOUS, TYPE_UNKNOWN
from api.tasks.heads import now_ms
from api.tasks.requests import Browsed, BrowsedLanes, BrowsedTypes, Name
from api.tasks.room import Desk, desk, routes
from api.tasks.types import TaskType
from domain.faults import Conflict, Invalid, Missing
from domain.tasks import ids
from domain.tasks import names as tasks_names
from domain.tasks.ids import POS_MAX
from domain.tasks.messages import FINAL, Search, Task
from stores.tasks import archive, heads, keys
from stores.tasks.heads import ListedLane
from stores.tasks.types import TypeSums

LANES_MAX: Final = 32
"""So many lanes are searched for one page, which is shorter then than it might be: each takes some milliseconds."""
FOUND_MAX: Final = 100

_END: Final = 10**15
"""Milliseconds: no task is created so late."""
_CURSOR_INVALID: Final = "cursor_invalid"
_LIVE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})\.([0-9a-f]{32})")
_ARCHIVED: Final = re.compile(r"([0-9]{1,18})\.(\S{1,160})")


class Item(NamedTuple):
    """A task of a page."""

    task_id: str
    task: Task
    archived: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: in a lane, or, where there is none, in the archive; after a task."""

    pos: int
    create_time: int = _END
    key: str = ""
    """In the archive the task's id."""

    @classmethod
    def read(cls, query: Browsed) -> Self:
        """Where the page before ended.

        Raises:
            Invalid: The cursor is none of ours.
        """
        if not query.cursor:
            return cls(0) if query.archived else cls(POS_MAX)
        if match := _LIVE.fullmatch(query.cursor):
            return cls(int(match[1]), int(match[2]), match[3])
        if (match := _ARCHIVED.fullmatch(query.cursor)) and ids.read(match[2]):
            return cls(0, int(match[1]), match[2])
        raise Invalid(
            _CURSOR_INVALID, "This cursor is not one of ours.", "Send next_cursor of the page before as it is."
        )

    @classmethod
    def after(cls, item: Item) -> Self:
        """Behind a task."""
        named = ids.read(item.task_id)
        if item.archived or named is None:
            return cls(0, item.task.create_time, item.task_id)
        return cls(named.pos, item.task.create_time, named.key)

    def __str__(self) -> str:
        return f"{self.pos}.{self.create_time}.{self.key}" if self.pos else f"{self.create_time}.{self.key}"


@routes.get(
    "/v1/browse_tasks",
    access=Access.PROJECTS,
    problems={TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict, _CURSOR_INVALID: Invalid},
)
async def browse_tasks(call: Call, query: Browsed) -> TaskPage | web.Response:
    """List the tasks of a type, a page at a time.

    Those of the newest lane come first, and those in the archive last; in each the newest first. A task that ends while
    you turn pages may come twice, but none is left out. A page may be shorter than asked for and not be the last.
    """
    here = desk(call)
    kind = await here.types.get(query.task_type, call.scope)
    items, cursor = await _page(here, kind, query, Place.read(query))
    texts = await asyncio.gather(*(here.contents.texts(item.task_id, item.task) for item in items))
    shown = [
        answers.looked_at(item.task_id, item.task, each, kind, archived=item.archived)
        for item, each in zip(items, texts, strict=True)
    ]
    return succeeded(task_list=shown, next_cursor=cursor)


async def _page(here: Desk, kind: TaskType, query: Browsed, place: Place) -> tuple[list[Item], str]:
    """Tasks from a place on, and where the next page begins."""
    wanted = query.limit + 1
    lanes = [pos for pos in await here.heads.open_lanes(kind.type) if pos <= place.pos] if place.pos else []
    wishes = [(pos, _wish(query, place if pos == place.pos else Place(pos), wanted)) for pos in lanes[:LANES_MAX]]
    items = [Item(*each) for each in await searching.in_lanes(here, kind, wishes, wanted, searching.turns())]
    if len(items) < wanted:
        if len(lanes) > LANES_MAX:
            return items, str(Place(lanes[LANES_MAX], _END, "f" * 32))
        items += await _in_archive(here, kind, query, Place(0) if place.pos else place, items, wanted - len(items))
    shown = items[: query.limit]
    return shown, str(Place.after(shown[-1])) if len(items) > query.limit else ""


def _wish(query: Browsed, place: Place, limit: int) -> Search:
    return Search(
        status=query.status or 0,
        stage=query.stage,
        limit=limit,
        before=place.create_time if place.key else 0,
        before_key=place.key,
        with_attempts=False,
    )


async def _in_archive(
    here: Desk, kind: TaskType, query: Browsed, place: Place, seen: list[Item], limit: int
) -> list[Item]:
    statuses = [status for status in FINAL if query.status in (None, status)]
    if not statuses or limit <= 0:
        return []
    known = {item.task_id for item in seen}
    before = (place.create_time, place.key)
    rows = await archive.list_behind(here.database, kind.type, statuses, query.stage, before, limit)
    return [Item(task_id, task, archived=True) for task_id, task in rows if task_id not in known]


@routes.get("/v1/get_task_figures", access=Access.PROJECTS)
async def get_task_figures(call: Call, query: BrowsedTypes) -> TypePage:
    """List types with what is in their queues: how much, since when, held by workers, failed.

    The admin key sees the types of all projects where it names none.
    """
    here = desk(call)
    rows = await here.types.browse(call.scope, query.prefix, query.cursor, query.limit)
    shown = rows[: query.limit]
    return TypePage(
        type_list=[_figures(kind, sums) for kind, sums in shown],
        next_cursor=f"{shown[-1][0].name}/{shown[-1][0].project_id}" if len(rows) > query.limit else "",
    )


def _figures(kind: TaskType, sums: TypeSums) -> TypeFigures:
    figures = asdict(sums)
    first = figures.pop("next_order_time")
    late = max(0, now_ms() - first) / 1000 if first else 0.0
    # The first may have become due since its lane counted.
    figures["due"] = max(figures["due"], int(late > 0))
    return TypeFigures(
        **answers.of_type(kind).model_dump(), project_id=kind.project_id, oldest_due_seconds=late, **figures
    )


@routes.get("/v1/get_task_lanes", access=Access.PROJECTS, problems={TYPE_UNKNOWN: Missing, TYPE_AMBIGUOUS: Conflict})
async def get_task_lanes(call: Call, query: BrowsedLanes) -> LanePage:
    """List the open lanes of a type, and how each stands."""
    here = desk(call)
    kind = await here.types.get(query.task_type, call.scope)
    rows = await heads.list_page(here.database, kind.type, int(query.cursor or 0), query.limit)
    shown = rows[: query.limit]
    return LanePage(
        lane_list=[_lane(kind.type, lane) for lane in shown],
        next_cursor=str(shown[-1].pos) if len(rows) > query.limit else "",
    )


def _lane(type_: str, lane: ListedLane) -> LaneAnswer:
    same = ("pos", "due", "pending", "running", "success", "failed", "cancelled", "held", "retries", "timeouts")
    return LaneAnswer(
        **{name: getattr(lane, name) for name in same},
        workflow_id=tasks_names.lane_id(type_, lane.pos),
        full=lane.is_full,
        next_order_time=_seconds(lane.next_order_time),
        next_lease_end=_seconds(lane.next_lease_end),
    )


def _seconds(moment: int | None) -> float | None:
    return None if moment is None else moment / 1000


@routes.get("/v1/find_tasks", access=Access.PROJECTS)
async def find_tasks(call: Call, query: Name) -> FoundIds:
    """Find the ids of tasks by the name that their creator sent as `task_id`; one for each type that has it."""
    return FoundIds(task_ids=await keys.find(desk(call).database, query.name, call.scope, FOUND_MAX))
