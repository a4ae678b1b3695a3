"""Task types: whose each is, how its tasks are scheduled, and which lanes its tasks are in.

Every change is one statement that names what it changes, so that several API processes lose none. What is read is kept
for a second: a full lane says so itself, and whatever else changes may take so long to be known everywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.shared_reads import BatchedLookup
from api.tasks.envelope import TYPE_AMBIGUOUS, TYPE_UNKNOWN
from api.tasks.requests import TypeConfig
from domain.faults import Conflict, Missing
from domain.tasks import ids
from domain.tasks.messages import Rules
from infra import log
from infra.database import Database
from stores.tasks import types
from stores.tasks.types import TaskTypeRow, TypeChange, TypeSums

FRESH_SECONDS = 0.4
"""From then on a type is read anew, by the way."""
STALE_SECONDS = 1.0
"""From then on a call waits for that."""
TYPES_AT_A_TIME = 200

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class TaskType:
    """A type as it was read last."""

    type: str
    """The name with its project: how lanes and tables know it."""
    project_id: str
    name: str
    schedule_limit: int
    schedule_interval: int
    max_retry_num: int
    max_retry_interval: int
    max_processing_time: int
    retry_interval: int
    lease_required: bool
    begin_pos: int
    end_pos: int
    rules: Rules
    read_at: float


class Types:
    """The types that this process was asked about."""

    def __init__(self, database: Database, lane_max_tasks: int) -> None:
        self._database = database
        self._lane_max_tasks = lane_max_tasks
        self._known: dict[str, TaskType] = {}
        self._reads = BatchedLookup(self._read, TYPES_AT_A_TIME)
        self._rereading: dict[str, asyncio.Task[None]] = {}

    def known(self, name: str, project_id: str) -> TaskType | None:
        """A project's type, if it was read a moment ago: most calls need not wait."""
        type_ = ids.make_type(project_id, name)
        known = self._known.get(type_)
        if known is None:
            return None
        age = time.monotonic() - known.read_at
        if age > FRESH_SECONDS and type_ not in self._rereading:
            self._rereading[type_] = asyncio.create_task(self._reread_aside(type_))
        return known if age <= STALE_SECONDS else None

    def last_known(self, type_: str) -> int:
        """The position that new tasks go to, or one before; 0 if nobody has asked for the type yet."""
        known = self._known.get(type_)
        return known.end_pos if known else 0

    async def get(self, name: str, scope: str | None) -> TaskType:
        """The type that a project has under a name; None as scope stands for all projects.

        Raises:
            Missing: The project has no such type.
            Conflict: All projects are looked at, and several have one.
        """
        kinds = await self.named(name, scope)
        if not kinds:
            raise Missing(
                TYPE_UNKNOWN,
                f"There is no type {name!r} for this key.",
                "Register it with POST /v1/register_task_type.",
            )
        if len(kinds) > 1:
            raise Conflict(
                TYPE_AMBIGUOUS,
                f"{len(kinds)} projects have a type {name!r}.",
                "Name the project in the header Haulage-Project.",
            )
        return kinds[0]

    async def named(self, name: str, scope: str | None) -> list[TaskType]:
        """The types with this name, of a project or of all."""
        if scope is not None:
            kind = self.known(name, scope) or await self.reread(ids.make_type(scope, name))
            return [kind] if kind else []
        return [self._keep(row) for row in await types.list_named(self._database, name)]

    async def reread(self, type_: str) -> TaskType | None:
        """The type as it is now, if there is one."""
        return await self._reads.get(type_)

    async def owned(self, project_id: str) -> list[TaskType]:
        """All types of a project."""
        return [self._keep(row) for row in await types.list_of_project(self._database, project_id)]

    async def browse(self, scope: str | None, prefix: str, after: str, limit: int) -> list[tuple[TaskType, TypeSums]]:
        """Types by name, each with the sums of its lanes and of what is archived; one more if another page follows.

        Args:
            after: A name, or a name and a project with a slash between: only types behind that are listed.
        """
        name, _, project_id = after.partition("/")
        rows = await types.list_page(self._database, scope, prefix, (name, project_id), limit)
        return [(self._keep(row), sums) for row, sums in rows]

    async def register(self, project_id: str, config: TypeConfig) -> TaskType:
        """Make a type, or change what is given of it.

        Raises:
            Invalid: The pauses that it would have then contradict each other; nothing is changed.
        """
        change = TypeChange(**{name: getattr(config, name) for name in TypeChange.__slots__})
        type_ = ids.make_type(project_id, config.task_type)
        return self._keep(await types.put(self._database, type_, project_id, config.task_type, change))

    async def pause(self, scope: str | None, name: str, *, paused: bool) -> TaskType:
        """Give out no tasks of a type any more, or again.

        Raises:
            Missing: The project has no such type.
            Conflict: All projects are looked at, and several have one.
        """
        kind = await self.get(name, scope)
        row = await types.pause(self._database, kind.type, paused=paused)
        return self._keep(row) if row else kind

    async def open_lane(self, type_: str, pos: int) -> TaskType | None:
        """Have new tasks go to this lane; the type, unless it is past it."""
        row = await types.open_lane(self._database, type_, pos)
        return self._keep(row) if row else None

    async def _reread_aside(self, type_: str) -> None:
        try:
            await self.reread(type_)
        except Exception as error:  # noqa: BLE001 - whoever needs the type soon asks for it, and is told
            _log.warning("type_not_read", type=type_, error=repr(error))
        finally:
            del self._rereading[type_]

    async def _read(self, wanted: Sequence[str]) -> Mapping[str, TaskType]:
        return {row.type: self._keep(row) for row in await types.find(self._database, wanted)}

    def _keep(self, row: TaskTypeRow) -> TaskType:
        known = self._known[row.type] = TaskType(
            **{name: getattr(row, name) for name in TaskType.__slots__ if name not in {"rules", "read_at"}},
            rules=Rules(
                version=row.version,
                schedule_limit=row.schedule_limit,
                max_retry_num=row.max_retry_num,
                max_retry_interval=row.max_retry_interval,
                max_processing_time=row.max_processing_time,
                paused=row.paused,
                lane_max_tasks=self._lane_max_tasks,
                retry_interval=row.retry_interval,
                lease_required=row.lease_required,
            ),
            read_at=time.monotonic(),
        )
        return known
