"""Task types: whose each is, how its tasks are scheduled, and which lanes its tasks are in.

Every change is one statement that names what it changes, so that several API processes lose none. It all is asked so
often that it goes past SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from domain.tasks.messages import Status
from domain.tasks.rules import check_pauses
from infra.database import Database


@dataclass(frozen=True, slots=True)
class TaskTypeRow:
    """A type as the table has it."""

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
    paused: bool
    version: int
    begin_pos: int
    end_pos: int


@dataclass(frozen=True, slots=True)
class TypeChange:
    """What is set of a type; None leaves what is there, or what a new type begins with."""

    schedule_limit: int | None
    schedule_interval: int | None
    max_retry_num: int | None
    max_retry_interval: int | None
    max_processing_time: int | None
    retry_interval: int | None
    lease_required: bool | None


@dataclass(frozen=True, slots=True)
class TypeSums:
    """What is in the queue of a type, summed over its lanes, and what has ended."""

    next_order_time: int | None
    due: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    lanes: int
    held: int
    retries: int
    timeouts: int


_NAMES = tuple(TaskTypeRow.__slots__)
_COLUMNS = ", ".join(_NAMES)
_SUMS = tuple(TypeSums.__slots__)
_SUMMED = ("due", "pending", "running", "held", "retries", "timeouts")
_READ = f"SELECT {_COLUMNS} FROM task_types WHERE type = ANY($1::text[])"  # noqa: S608 - a constant
_OWNED = f"SELECT {_COLUMNS} FROM task_types WHERE project_id = $1 ORDER BY name"  # noqa: S608
_NAMED = f"SELECT {_COLUMNS} FROM task_types WHERE name = $1 ORDER BY project_id"  # noqa: S608
# What a lane counts includes what is archived, as long as it is open.
_PAGE = f"""
    SELECT {", ".join(f"t.{name}" for name in _NAMES)}, h.*,
        coalesce(h.success, 0) + coalesce(c.success, 0) AS success_tasks,
        coalesce(h.failed, 0) + coalesce(c.failed, 0) AS failed_tasks,
        coalesce(h.cancelled, 0) + coalesce(c.cancelled, 0) AS cancelled_tasks
    FROM (
        SELECT * FROM task_types
        WHERE ($1::text IS NULL OR project_id = $1) AND starts_with(name, $2) AND (name, project_id) > ($3, $4)
        ORDER BY name, project_id LIMIT $5
    ) AS t,
    LATERAL (
        SELECT min(next_order_time) AS next_order_time_tasks, sum(success)::bigint AS success,
            sum(failed)::bigint AS failed, sum(cancelled)::bigint AS cancelled, count(*) AS lanes_tasks,
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
_PUT = f"""
    INSERT INTO task_types AS t (type, project_id, name, schedule_limit, schedule_interval, max_retry_num,
        max_retry_interval, max_processing_time, retry_interval, lease_required, paused, version, begin_pos, end_pos)
    VALUES ($1, $2, $3, coalesce($4, 100), coalesce($5, 10), coalesce($6, 3), coalesce($7, 30), coalesce($8, 30),
        coalesce($9, 1), coalesce($10, false), false, 1, 1, 1)
    ON CONFLICT (type) DO UPDATE SET
        schedule_limit = coalesce($4, t.schedule_limit),
        schedule_interval = coalesce($5, t.schedule_interval),
        max_retry_num = coalesce($6, t.max_retry_num),
        max_retry_interval = coalesce($7, t.max_retry_interval),
        max_processing_time = coalesce($8, t.max_processing_time),
        retry_interval = coalesce($9, t.retry_interval),
        lease_required = coalesce($10, t.lease_required),
        version = t.version + 1,
        changed_at = now()
    RETURNING {_COLUMNS}
"""  # noqa: S608
_PAUSE = f"""
    UPDATE task_types SET paused = $2, version = version + 1, changed_at = now() WHERE type = $1 RETURNING {_COLUMNS}
"""  # noqa: S608
# A lane that is done is behind `end_pos`, so that a caller who comes late does not count it in again.
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


async def find(database: Database, types: Sequence[str]) -> list[TaskTypeRow]:
    """Those of these types that there are."""
    return await _fetch(database, _READ, list(types))


async def list_named(database: Database, name: str) -> list[TaskTypeRow]:
    """The types of all projects with a name."""
    return await _fetch(database, _NAMED, name)


async def list_of_project(database: Database, project_id: str) -> list[TaskTypeRow]:
    """All types of a project, by name."""
    return await _fetch(database, _OWNED, project_id)


async def list_page(
    database: Database, project_id: str | None, prefix: str, after: tuple[str, str], limit: int
) -> list[tuple[TaskTypeRow, TypeSums]]:
    """Types of a project or of all, by name, each with its sums; one more if another page follows.

    Args:
        after: The name and the project behind which the page begins.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(_PAGE, project_id, prefix, *after, limit + 1)
    return [
        (TaskTypeRow(*(row[name] for name in _NAMES)), TypeSums(*(row[f"{name}_tasks"] for name in _SUMS)))
        for row in rows
    ]


async def put(database: Database, type_: str, project_id: str, name: str, change: TypeChange) -> TaskTypeRow:
    """Make a type, or change what is given of it.

    Raises:
        Invalid: The pauses that it would have then contradict each other; nothing is changed.
    """
    async with database.connection() as connection, connection.transaction():
        row = await connection.fetchrow(_PUT, type_, project_id, name, *astuple(change))
        if row is None:
            raise LookupError("a statement that writes a type has answered no row")
        # What was there before counts, too: it is known only now.
        if change.max_retry_interval is not None or change.retry_interval is not None:
            check_pauses(row["retry_interval"], row["max_retry_interval"])
    return TaskTypeRow(*row)


async def pause(database: Database, type_: str, *, paused: bool) -> TaskTypeRow | None:
    """Have no tasks of a type given out any more, or again."""
    return next(iter(await _fetch(database, _PAUSE, type_, paused)), None)


async def open_lane(database: Database, type_: str, pos: int) -> TaskTypeRow | None:
    """Have new tasks go to this lane; the type, unless it is past it."""
    return next(iter(await _fetch(database, _OPEN, type_, pos)), None)


async def _fetch(database: Database, statement: str, *values: object) -> list[TaskTypeRow]:
    async with database.connection() as connection:
        return [TaskTypeRow(*row) for row in await connection.fetch(statement, *values)]
