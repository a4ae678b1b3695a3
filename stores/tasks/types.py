"""Task types: their configuration, and which positions have an open lane.

Every change is one statement that names what it changes, so that concurrent API processes overwrite nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import text

from domain.quotas import STANDING_RETRY_SECONDS, build_quota_exceeded_fault
from domain.tasks.messages import TaskStatus
from domain.tasks.scheduling import require_consistent_retry_intervals
from infra.database import Database, Session
from stores.keyset import SqlOrderAndAfterCondition


@dataclass(frozen=True, slots=True)
class TaskTypeRow:
    """Columns of `task_types` that the API and lanes use."""

    type: str
    """Identifier of the type: project id and name."""
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
class TaskTypeChange:
    """New values of a type's configuration; None keeps the stored value, or the default of a new type."""

    schedule_limit: int | None
    schedule_interval: int | None
    max_retry_num: int | None
    max_retry_interval: int | None
    max_processing_time: int | None
    retry_interval: int | None
    lease_required: bool | None


@dataclass(frozen=True, slots=True)
class TaskTypeCounts:
    """Counters of a type: those of its open lanes, and of tasks that have ended the archived ones as well."""

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


_NAMES: Final = tuple(TaskTypeRow.__slots__)
_COLUMNS: Final = ", ".join(_NAMES)
_COUNTS: Final = tuple(TaskTypeCounts.__slots__)
_SUMMED: Final = ("due", "pending", "running", "held", "retries", "timeouts")
_KEYSET: Final = SqlOrderAndAfterCondition(("name", "project_id"), is_descending=False)

# Statements that are alone go to the driver: 0.33 ms of processor, through a session 0.95. See ADR 0019.
_FIND: Final = f"SELECT {_COLUMNS} FROM task_types WHERE type = ANY($1::text[]) AND removed_at IS NULL"  # noqa: S608 - a constant
_OF_PROJECT: Final = f"SELECT {_COLUMNS} FROM task_types WHERE project_id = $1 AND removed_at IS NULL ORDER BY name"  # noqa: S608 - a constant
_NAMED: Final = f"SELECT {_COLUMNS} FROM task_types WHERE name = $1 AND removed_at IS NULL ORDER BY project_id"  # noqa: S608 - a constant
# The counters of an open lane include its archived tasks.
_PAGE: Final = f"""
    SELECT {", ".join(f"t.{name}" for name in _NAMES)}, h.*,
        coalesce(h.success, 0) + coalesce(c.success, 0) AS success_tasks,
        coalesce(h.failed, 0) + coalesce(c.failed, 0) AS failed_tasks,
        coalesce(h.cancelled, 0) + coalesce(c.cancelled, 0) AS cancelled_tasks
    FROM (
        SELECT * FROM task_types
        WHERE removed_at IS NULL AND ($1::text IS NULL OR project_id = $1)
            AND starts_with(name, $2) AND {_KEYSET.format_after_condition("$3", "$4")}
        {_KEYSET.order_by} LIMIT $5
    ) AS t,
    LATERAL (
        SELECT min(next_order_time) AS next_order_time_tasks, CAST(sum(success) AS bigint) AS success,
            CAST(sum(failed) AS bigint) AS failed, CAST(sum(cancelled) AS bigint) AS cancelled,
            count(*) AS lanes_tasks,
            {", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint) AS {name}_tasks" for name in _SUMMED)}
        FROM task_heads WHERE type = t.type
    ) AS h,
    LATERAL (
        SELECT CAST(sum(tasks) FILTER (WHERE status = {int(TaskStatus.SUCCESS)}) AS bigint) AS success,
            CAST(sum(tasks) FILTER (WHERE status = {int(TaskStatus.FAILED)}) AS bigint) AS failed,
            CAST(sum(tasks) FILTER (WHERE status = {int(TaskStatus.CANCELLED)}) AS bigint) AS cancelled
        FROM task_counts WHERE type = t.type AND pos NOT IN (SELECT pos FROM task_heads WHERE type = t.type)
    ) AS c
    {_KEYSET.order_by}
"""  # noqa: S608 - constants
_SAVE = text(
    f"""
    INSERT INTO task_types AS t (type, project_id, name, schedule_limit, schedule_interval, max_retry_num,
        max_retry_interval, max_processing_time, retry_interval, lease_required, paused, version, begin_pos, end_pos)
    VALUES (:type, :project_id, :name, coalesce(:schedule_limit, 100), coalesce(:schedule_interval, 10),
        coalesce(:max_retry_num, 3), coalesce(:max_retry_interval, 30), coalesce(:max_processing_time, 30),
        coalesce(:retry_interval, 1), coalesce(:lease_required, false), false, 1, 1, 1)
    ON CONFLICT (type) DO UPDATE SET
        {", ".join(f"{name} = coalesce(:{name}, t.{name})" for name in TaskTypeChange.__slots__)},
        version = t.version + 2,
        changed_at = now(),
        removed_at = NULL
    RETURNING {_COLUMNS}, xmax = 0 AS is_new
    """  # noqa: S608
)
_LOCK_PROJECT = text("SELECT FROM projects WHERE id = :project_id FOR NO KEY UPDATE")
_COUNT: Final = "SELECT count(*) FROM task_types WHERE project_id = $1"
_COUNT_LOCKED = text("SELECT count(*) FROM task_types WHERE project_id = :project_id")
_SET_PAUSED: Final = (
    "UPDATE task_types SET paused = $2, version = version + 2, changed_at = now() "  # noqa: S608 - a constant
    f"WHERE type = $1 AND removed_at IS NULL RETURNING {_COLUMNS}"
)
_REMOVE: Final = (
    "UPDATE task_types SET removed_at = now(), paused = false, version = version + 2, changed_at = now() "
    "WHERE type = $1 AND version = $2 AND end_pos = $3 AND removed_at IS NULL RETURNING true"
)
_KEEP: Final = (
    "UPDATE task_types SET version = version + 2 WHERE type = $1 AND version = $2 AND removed_at IS NULL "  # noqa: S608 - a constant
    f"RETURNING {_COLUMNS}"
)
# A position before `end_pos` is not opened again: its lane may be closed.
_OPEN_LANE: Final = f"""
    WITH opened AS (
        UPDATE task_types SET end_pos = $2 WHERE type = $1 AND end_pos <= $2 AND removed_at IS NULL
        RETURNING {_COLUMNS}
    ), added AS (
        INSERT INTO task_heads (type, pos, number, due, pending, running, success, failed, held, retries, timeouts,
            is_full)
        SELECT type, $2, 0, 0, 0, 0, 0, 0, 0, 0, 0, false FROM opened ON CONFLICT DO NOTHING
    )
    SELECT {_COLUMNS} FROM opened
"""  # noqa: S608 - constants


async def find_types_by_id(database: Database, types: Sequence[str]) -> list[TaskTypeRow]:
    """Return the types that exist, of those named by identifier."""
    return await _fetch_types(database, _FIND, list(types))


async def list_types_by_name(database: Database, name: str) -> list[TaskTypeRow]:
    """Return the types of all projects with this name."""
    return await _fetch_types(database, _NAMED, name)


async def list_types_of_project(database: Database, project_id: str) -> list[TaskTypeRow]:
    """Return all types of a project, by name."""
    return await _fetch_types(database, _OF_PROJECT, project_id)


async def list_type_and_counts_page_plus_one(
    database: Database, project_id: str | None, prefix: str, after: tuple[str, str], limit: int
) -> list[tuple[TaskTypeRow, TaskTypeCounts]]:
    """Return types with their counters, by name, and one more than the limit if another page follows.

    Args:
        project_id: None for the types of all projects.
        after: Name and project of the last type of the page before.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(_PAGE, project_id, prefix, *after, limit + 1)
    return [
        (
            TaskTypeRow(**{name: row[name] for name in _NAMES}),
            TaskTypeCounts(**{name: row[f"{name}_tasks"] for name in _COUNTS}),
        )
        for row in rows
    ]


async def count_types_of_project(database: Database, project_id: str) -> int:
    """Return how many types a project has."""
    async with database.connection() as connection:
        return int(await connection.fetchval(_COUNT, project_id))


async def create_or_update_type(
    database: Database, type_: str, project_id: str, name: str, change: TaskTypeChange, types_max: int
) -> TaskTypeRow:
    """Create a type, or apply a change to it.

    Raises:
        Invalid: The resulting retry intervals contradict each other; nothing is changed.
        QuotaExhausted: The project has as many types as it may; nothing is created.
    """
    values = {"type": type_, "project_id": project_id, "name": name, **asdict(change)}
    async with database.session() as session:
        *columns, is_new = (await session.execute(_SAVE, values)).one()
        row = TaskTypeRow(*columns)
        if is_new:
            await _raise_if_count_exceeds_quota(session, project_id, types_max)
        # Known only after the stored values have been merged.
        if change.max_retry_interval is not None or change.retry_interval is not None:
            require_consistent_retry_intervals(row.retry_interval, row.max_retry_interval)
        return row


async def set_paused(database: Database, type_: str, *, paused: bool) -> TaskTypeRow | None:
    """Pause or resume a type; None if there is no such type."""
    return next(iter(await _fetch_types(database, _SET_PAUSED, type_, paused)), None)


async def remove_type_unless_changed(database: Database, task_type: TaskTypeRow) -> bool:
    """Remove a type whose configuration and last lane are as they were read; lanes and ended tasks stay."""
    async with database.connection() as connection:
        return bool(await connection.fetchval(_REMOVE, task_type.type, task_type.version, task_type.end_pos))


async def increment_version_unless_changed(database: Database, task_type: TaskTypeRow) -> TaskTypeRow | None:
    """Give a type the version after that of an attempted removal; None if it was changed since it was read."""
    rows = await _fetch_types(database, _KEEP, task_type.type, task_type.version)
    return next(iter(rows), None)


async def advance_type_to_lane_unless_past(database: Database, type_: str, pos: int) -> TaskTypeRow | None:
    """Direct new tasks to the lane at this position; None if the type has gone past it, or is removed."""
    return next(iter(await _fetch_types(database, _OPEN_LANE, type_, pos)), None)


async def _raise_if_count_exceeds_quota(session: Session, project_id: str, types_max: int) -> None:
    # After the lock, which a transaction that creates another type holds to its end, this one sees that type.
    await session.execute(_LOCK_PROJECT, {"project_id": project_id})
    if (await session.execute(_COUNT_LOCKED, {"project_id": project_id})).scalar_one() > types_max:
        raise build_quota_exceeded_fault(
            ["task_types"],
            f"This project has {types_max:,} types of tasks, as many as it may; those that were removed count as well.",
            "Use one of them, register a removed one again, or ask the operator for another quota.",
            STANDING_RETRY_SECONDS,
        )


async def _fetch_types(database: Database, statement: str, *values: object) -> list[TaskTypeRow]:
    async with database.connection() as connection:
        return [TaskTypeRow(*row) for row in await connection.fetch(statement, *values)]
