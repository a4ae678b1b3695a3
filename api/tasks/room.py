"""The room: where its routes are declared, and what its handlers work with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from aiohttp import web
from temporalio.service import RPCError

from api.http.routes import Call, Routes
from api.shared_reads import BatchedLookup, CoalescedRead
from api.tasks.calls import Over
from api.tasks.contents import Contents
from api.tasks.envelope import TASK_UNKNOWN, render
from api.tasks.heads import Heads
from api.tasks.keys import Keys
from api.tasks.lanes import LANES_KEPT, Lanes
from api.tasks.resting import LaneName
from api.tasks.types import TaskType, Types
from domain.faults import Missing
from domain.tasks import ids
from domain.tasks.carrying import LaneOrder
from domain.tasks.ids import TaskId
from domain.tasks.messages import Head, Rules, Task
from infra import log
from services.services import Services
from stores.tasks import archive
from workflows.tasks import handle

NEARLY_FULL = 60
"""Per cent of what a lane takes; a type that creates some thousand tasks a second fills the rest in 200 ms."""
ARCHIVED_AT_A_TIME = 500

_log = log.get(__name__)


class Desk:
    """What this process knows of tasks, and how it asks for the rest."""

    def __init__(self, services: Services) -> None:
        self.database = services.database
        self.heads = Heads(services.database)
        self.lanes = Lanes(services.engine, self._learn)
        self.types = Types(services.database, services.settings.tasks.lane_max_tasks)
        self.contents = Contents(services.database)
        self.archived = BatchedLookup(partial(archive.find, services.database), ARCHIVED_AT_A_TIME)
        self.keys = Keys(services.database)
        self._engine = services.engine
        self._openings = CoalescedRead(self._open)
        self._begun: dict[LaneName, asyncio.Task[None]] = {}

    async def type_of(self, call: Call, task_id: str) -> tuple[TaskId, TaskType]:
        """The task that an id names, and its type.

        Raises:
            Missing: It is no id of a task of the caller's project.
        """
        named = ids.read(task_id)
        kind = named and await self.type_with(named, call.scope)
        if not named or not kind:
            raise unknown(task_id)
        return named, kind

    async def type_with(self, named: TaskId, scope: str | None) -> TaskType | None:
        """The type that a task is of, if it is the project's and has come as far as that lane."""
        if scope is None:
            return await self._type_of_any(named)
        kind = self.types.known(named.name, scope)
        if kind is None or kind.end_pos < named.pos:
            kind = await self.types.reread(ids.make_type(scope, named.name))
        return kind if kind and kind.end_pos >= named.pos else None

    async def _type_of_any(self, named: TaskId) -> TaskType | None:
        """The type that a task is of; where several projects have one of that name, the one that has the task."""
        kinds = [kind for kind in await self.types.named(named.name, None) if kind.end_pos >= named.pos]
        if len(kinds) < 2:
            return kinds[0] if kinds else None
        type_ = await archive.find_type(self.database, str(named))
        for kind in kinds:
            if kind.type == type_ or await self.find_live(named, kind):
                return kind
        return None

    async def find(self, named: TaskId, kind: TaskType) -> Task | None:
        """A task where it is: in its lane, or, when that has let go of it, in the archive."""
        return await self.find_live(named, kind) or await self.archived.get(str(named))

    async def find_live(self, named: TaskId, kind: TaskType) -> Task | None:
        """A task, if it is in its lane."""
        if named.pos >= kind.begin_pos:
            with suppress(Over):
                return await self.lanes.read((kind.type, named.pos), named.key)
        return None

    async def open_next(self, kind: TaskType, pos: int) -> TaskType:
        """See that there is a lane for new tasks beside this one, which takes none; the type as it is then."""
        if self.types.last_known(kind.type) <= pos:
            now = await self.types.reread(kind.type)
            if now is None or now.end_pos == pos:
                await self.open((kind.type, pos + 1))
        return self.types.known(kind.name, kind.project_id) or await self.types.get(kind.name, kind.project_id)

    async def open(self, lane: LaneName) -> None:
        """Have a lane take tasks, unless the type is past it."""
        await self._openings.get(lane)

    async def _open(self, lane: LaneName) -> None:
        if not await self.types.open_lane(*lane):
            return
        # What was begun before its time is trusted once: whoever finds nothing there begins it anew.
        begun = self._begun.pop(lane, None) or asyncio.create_task(self._begin(lane))
        await begun

    def _learn(self, type_: str, pos: int, head: Head) -> None:
        """A lane said how it stands; before it is full, the next one is begun, so that nobody has to wait for it."""
        self.heads.hear(type_, pos, head)
        following = (type_, pos + 1)
        if head.share >= NEARLY_FULL and self.types.last_known(type_) == pos and following not in self._begun:
            if len(self._begun) >= LANES_KEPT:
                self._begun = {lane: begun for lane, begun in self._begun.items() if not begun.done()}
            self._begun[following] = asyncio.create_task(self._begin_early(following))

    async def _begin_early(self, lane: LaneName) -> None:
        try:
            await self._begin(lane)
        except (RPCError, OSError) as error:
            # It is begun when it is needed.
            self._begun.pop(lane, None)
            _log.warning("lane_not_begun", type=lane[0], pos=lane[1], error=repr(error))

    async def _begin(self, lane: LaneName) -> None:
        type_, pos = lane
        # Version 0: it learns the rules with its first group.
        await handle.start_lane(
            self._engine, LaneOrder(type=type_, pos=pos, rules=Rules()), f"lane {pos} of {ids.split_type(type_)[1]}"
        )


DESK = web.AppKey("tasks_desk", Desk)


def _attach(app: web.Application, services: Services) -> None:
    desk = app[DESK] = Desk(services)

    async def showing(_app: web.Application) -> AsyncIterator[None]:
        heads = desk.heads
        looking = [asyncio.create_task(each) for each in (heads.show(), heads.follow(), heads.announce())]
        yield
        for each in looking:
            each.cancel()
        await asyncio.gather(*looking, return_exceptions=True)

    app.cleanup_ctx.append(showing)


routes = Routes(
    "tasks",
    "Tasks wait in queues for workers outside, which hold them, do them and say so.",
    render=render,
    attach=_attach,
    headerless=True,
)


def desk(call: Call) -> Desk:
    """What this process knows of tasks."""
    return call.request.app[DESK]


def unknown(task_id: str) -> Missing:
    """What is told of an id that names nothing of this project."""
    return Missing(
        TASK_UNKNOWN, f"There is no task {task_id!r} for this key.", "Check the id that create_task answered."
    )
