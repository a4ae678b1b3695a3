"""Task types: whose each is, how its tasks are scheduled, and which lanes its tasks are in.

Every change is one statement that names what it changes, so that several API processes lose none. What is read is kept
for a second: a full lane says so itself, and whatever else changes may take so long to be known everywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from api.tasks.envelope import TYPE_AMBIGUOUS, TYPE_UNKNOWN
from api.tasks.requests import TypeConfig
from api.together import Gathered
from domain.faults import Conflict, Missing
from domain.tasks import ids
from domain.tasks.messages import Rules, Status
from domain.tasks.rules import check_pauses
from infra import log
from infra.database import Database

FRESH_SECONDS = 0.4
"""From then on a type is read anew, by the way."""
STALE_SECONDS = 1.0
"""From then on a call waits for that."""
TYPES_AT_A_TIME = 200

_COLUMNS = """type, project_id, name, schedule_limit, schedule_interval, max_retry_num, max_retry_interval,
    max_processing_time, retry_interval, lease_required, paused, version, begin_pos, end_pos"""
_SUMMED = ("due", "pending", "running", "held", "retries", "timeouts")
_READ = f"SELECT {_COLUMNS} FROM task_types WHERE type = ANY($1::text[])"  # noqa: S608 - a constant
_OWNED = f"SELECT {_COLUMNS} FROM task_types WHERE project_id = $1 ORDER BY name"  # noqa: S608
_NAMED = f"SELECT {_COLUMNS} FROM task_types WHERE name = $1 ORDER BY project_id"  # noqa: S608
# What a lane counts includes what is archived, as long as it is open.
_BROWSE = f"""
    SELECT {", ".join(f"t.{name.strip()}" for name in _COLUMNS.split(","))}, h.*,
        coalesce(h.success, 0) + coalesce(c.success, 0) AS success_tasks,
        coalesce(h.failed, 0) + coalesce(c.failed, 0) AS failed_tasks,
        coalesce(h.cancelled, 0) + coalesce(c.cancelled, 0) AS cancelled_tasks
    FROM (
        SELECT * FROM task_types
        WHERE ($1::text IS NULL OR project_id = $1) AND starts_with(name, $2) AND (name, project_id) > ($3, $4)
        ORDER BY name, project_id LIMIT $5
    ) AS t,
    LATERAL (
        SELECT min(next_order_time) AS next_order_time, sum(success)::bigint AS success, sum(failed)::bigint AS failed,
            sum(cancelled)::bigint AS cancelled, count(*) AS lanes_tasks,
            {", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}_tasks" for name in _SUMMED)}
        FROM task_heads WHERE type = t.type
    ) AS h,
    LATERAL (
        SELECT sum(tasks) FILTER (WHERE status = {int(Status.SUCCESS)})::bigint AS success,
            sum(tasks) FILTER (WHERE status = {int(Status.FAILED)})::bigint AS failed,
            sum(tasks) FILTER (WHERE status = {int(Status.CANCELLED)})::bigint AS cancelled
        FROM task_counts WHERE type = t.type AND pos NOT IN (SELECT pos FROM task_heads WHERE type = t.type)
    ) AS c
    ORDER BY t.name, t.project_id
"""  # noqa: S608
_REGISTER = f"""
    INSERT INTO task_types AS t (type, project_id, name, schedule_limit, schedule_interval, max_retry_num,
        max_retry_interval, max_processing_time, retry_interval, lease_required, paused, version, begin_pos, end_pos)
    VALUES ($10, $2, $1, coalesce($3, 100), coalesce($4, 10), coalesce($5, 3), coalesce($6, 30), coalesce($7, 30),
        coalesce($8, 1), coalesce($9, false), false, 1, 1, 1)
    ON CONFLICT (type) DO UPDATE SET
        schedule_limit = coalesce($3, t.schedule_limit),
        schedule_interval = coalesce($4, t.schedule_interval),
        max_retry_num = coalesce($5, t.max_retry_num),
        max_retry_interval = coalesce($6, t.max_retry_interval),
        max_processing_time = coalesce($7, t.max_processing_time),
        retry_interval = coalesce($8, t.retry_interval),
        lease_required = coalesce($9, t.lease_required),
        version = t.version + 1,
        changed_at = now()
    RETURNING {_COLUMNS}
"""  # noqa: S608
_PAUSE = f"""
    UPDATE task_types SET paused = $2, version = version + 1, changed_at = now() WHERE type = $1 RETURNING {_COLUMNS}
"""  # noqa: S608
# A lane that is done is behind `end_pos`, so that nobody who comes late counts it in again.
_OPEN = f"""
    WITH opened AS (
        UPDATE task_types SET end_pos = $2 WHERE type = $1 AND end_pos <= $2 RETURNING {_COLUMNS}
    ), counted AS (
        INSERT INTO task_heads (type, pos, number, due, pending, running, success, failed, held, retries, timeouts,
            is_full)
        SELECT type, $2, 0, 0, 0, 0, 0, 0, 0, 0, 0, false FROM opened ON CONFLICT DO NOTHING
    )
    SELECT {_COLUMNS} FROM opened
"""  # noqa: S608

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
        self._reads = Gathered(self._read, TYPES_AT_A_TIME)
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
        async with self._database.connection() as connection:
            return [self._keep(row) for row in await connection.fetch(_NAMED, name)]

    async def reread(self, type_: str) -> TaskType | None:
        """The type as it is now, if there is one."""
        return await self._reads.ask(type_)

    async def owned(self, project_id: str) -> list[TaskType]:
        """All types of a project."""
        async with self._database.connection() as connection:
            return [self._keep(row) for row in await connection.fetch(_OWNED, project_id)]

    async def browse(
        self, scope: str | None, prefix: str, after: str, limit: int
    ) -> list[tuple[TaskType, asyncpg.Record]]:
        """Types by name, each with the sums of its lanes and of what is archived.

        Args:
            after: A name, or a name and a project with a slash between: only types behind that are listed.
        """
        name, _, project_id = after.partition("/")
        async with self._database.connection() as connection:
            rows = await connection.fetch(_BROWSE, scope, prefix, name, project_id, limit)
        return [(self._keep(row), row) for row in rows]

    async def register(self, project_id: str, config: TypeConfig) -> TaskType:
        """Make a type, or change what is given of it.

        Raises:
            Invalid: The pauses that it would have then contradict each other; nothing is changed.
        """
        values = (
            config.schedule_limit,
            config.schedule_interval,
            config.max_retry_num,
            config.max_retry_interval,
            config.max_processing_time,
            config.retry_interval,
            config.lease_required,
        )
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(
                _REGISTER, config.task_type, project_id, *values, ids.make_type(project_id, config.task_type)
            )
            if row is None:
                raise LookupError("a statement that writes a type has answered no row")
            # What was there before counts, too: it is known only here.
            if config.max_retry_interval is not None or config.retry_interval is not None:
                check_pauses(row["retry_interval"], row["max_retry_interval"])
        return self._keep(row)

    async def pause(self, scope: str | None, name: str, *, paused: bool) -> TaskType:
        """Give out no tasks of a type any more, or again.

        Raises:
            Missing: The project has no such type.
            Conflict: All projects are looked at, and several have one.
        """
        kind = await self.get(name, scope)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_PAUSE, kind.type, paused)
        return self._keep(row) if row else kind

    async def open_lane(self, type_: str, pos: int) -> TaskType | None:
        """Have new tasks go to this lane; the type, unless it is past it."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_OPEN, type_, pos)
        return self._keep(row) if row else None

    async def _reread_aside(self, type_: str) -> None:
        try:
            await self.reread(type_)
        except Exception as error:  # noqa: BLE001 - whoever needs the type soon asks for it, and is told
            _log.warning("type_not_read", type=type_, error=repr(error))
        finally:
            del self._rereading[type_]

    async def _read(self, types: Sequence[str]) -> Mapping[str, TaskType]:
        async with self._database.connection() as connection:
            return {row["type"]: self._keep(row) for row in await connection.fetch(_READ, list(types))}

    def _keep(self, row: asyncpg.Record) -> TaskType:
        known = self._known[row["type"]] = TaskType(
            **{name: row[name] for name in TaskType.__slots__ if name not in {"rules", "read_at"}},
            rules=Rules(
                version=row["version"],
                schedule_limit=row["schedule_limit"],
                max_retry_num=row["max_retry_num"],
                max_retry_interval=row["max_retry_interval"],
                max_processing_time=row["max_processing_time"],
                paused=row["paused"],
                lane_max_tasks=self._lane_max_tasks,
                retry_interval=row["retry_interval"],
                lease_required=row["lease_required"],
            ),
            read_at=time.monotonic(),
        )
        return known
