"""Open lanes: one row with the head of each position of a type that was opened and is not closed.

The last position of a type always has a row, even before its lane has received a batch. The overview counts from these
rows, and failed tasks from the archive.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import text

from domain.tasks.activity_models import CheckpointInput, CloseLaneInput, LanePassedByTypeResult
from domain.tasks.messages import LaneHead, TaskStatus
from domain.workload import (
    ConcernKind,
    WorkByProject,
    merge_workloads,
    parse_concerns,
    parse_uncounted_concerns,
    parse_workloads,
)
from infra.database import Database, Session
from stores.keyset import SqlOrderAndAfterCondition
from stores.pauses import build_task_type_subject
from stores.tables.tasks import HEADS_CHANNEL
from stores.tasks import archive

FAILED_WITHIN: Final = timedelta(days=1)
"""Failed tasks need no action, so the overview shows recent ones only."""
OVERDUE_SECONDS: Final = 60.0

_QUEUES: Final = f"""
    SELECT t.project_id, sum(h.running)::bigint AS running, NULL::timestamptz AS running_at,
        sum(h.pending)::bigint AS waiting,
        to_timestamp(min(h.next_order_time) FILTER (WHERE h.next_order_time <= $1) / 1000.0) AS waiting_at,
        0 AS failed, NULL::timestamptz AS failed_at,
        t.name AS subject,
        CASE WHEN t.paused THEN 'paused by ' || coalesce(max(p.who) || ': ' || max(p.reason), 'an operator')
            WHEN sum(h.running) = 0 THEN 'no worker holds a task of it' ELSE 'its workers hold others' END AS cause,
        coalesce(sum(h.due) FILTER (WHERE h.next_order_time <= $2 AND NOT t.paused), 0)::bigint AS count,
        coalesce(sum(h.due) FILTER (WHERE h.next_order_time <= $1), 0)::bigint AS due
    FROM task_heads h JOIN task_types t USING (type)
        LEFT JOIN system_pauses p ON p.system = '{build_task_type_subject("")}' || t.type
    GROUP BY t.project_id, t.name, t.paused
"""  # noqa: S608 - a constant
_OPEN: Final = """
    SELECT coalesce(sum(h.pending + h.running), 0)::bigint FROM task_heads h JOIN task_types t USING (type)
    WHERE t.project_id = $1
"""
_PAUSED: Final = f"""
    SELECT project_id, name AS subject, coalesce(who || ': ' || nullif(reason, ''), who, '') AS cause, 1 AS count
    FROM task_types LEFT JOIN system_pauses ON system = '{build_task_type_subject("")}' || type WHERE paused
"""  # noqa: S608 - a constant
_FAILED: Final = f"""
    SELECT t.project_id, t.name AS subject, '' AS cause, count(*), count(*) AS failed,
        to_timestamp(min(a.modify_time) / 1000.0) AS failed_at,
        0 AS running, NULL::timestamptz AS running_at, 0 AS waiting, NULL::timestamptz AS waiting_at
    FROM task_types t JOIN tasks_archive a ON a.type = t.type AND a.status = {int(TaskStatus.FAILED)}
        AND a.modify_time > $1
    GROUP BY t.project_id, t.name
"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class OpenLaneRow:
    """An open lane with its last saved head."""

    pos: int
    next_order_time: int | None
    next_lease_end: int | None
    due: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    held: int
    retries: int
    timeouts: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class TaskTypeTotals:
    """Sums over the open lanes of a type."""

    type: str
    due: int
    pending: int
    running: int
    next_order_time: int | None
    lanes: int
    held: int
    retries: int
    timeouts: int


class OpenLane(NamedTuple):
    """Type, name of the type within its project, and position of an open lane."""

    type: str
    name: str
    pos: int


_NUMBERS: Final = (
    *("number", "next_order_time", "next_lease_end", "due", "pending", "running"),
    *("success", "failed", "cancelled", "held", "retries", "timeouts"),
)
_COUNTS: Final = tuple(name for name in _NUMBERS if not name.startswith("next_"))
_KEYSET: Final = SqlOrderAndAfterCondition(("pos",), is_descending=False)

_SAVE_HEAD = text(
    f"INSERT INTO task_heads (type, pos, is_full, {', '.join(_NUMBERS)}) "  # noqa: S608 - constants
    "SELECT CAST(:type AS text), CAST(:pos AS int), CAST(:is_full AS boolean), "
    f"{', '.join(f'CAST(:{name} AS bigint)' for name in _NUMBERS)} "
    # A late attempt at a checkpoint must not add a lane that has closed meanwhile.
    "WHERE :is_first OR EXISTS (SELECT FROM task_heads WHERE type = :type AND pos = :pos) "
    "OR EXISTS (SELECT FROM task_types WHERE type = :type AND end_pos <= :pos) "
    "ON CONFLICT (type, pos) DO UPDATE SET updated_at = now(), is_full = excluded.is_full, "
    f"{', '.join(f'{name} = excluded.{name}' for name in _NUMBERS)} WHERE task_heads.number < excluded.number"
)
_LOCK_TYPE = text("SELECT begin_pos, end_pos FROM task_types WHERE type = :type FOR UPDATE")
_ADD_LANES = text(
    f"INSERT INTO task_heads (type, pos, is_full, {', '.join(_COUNTS)}) "  # noqa: S608 - constants
    f"SELECT :type, pos, false, {', '.join('0' for _ in _COUNTS)} "
    "FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS pos ON CONFLICT DO NOTHING"
)
_REMOVE_LANE = text("DELETE FROM task_heads WHERE type = :type AND pos = :pos")
_MOVE_RANGE = text(
    "UPDATE task_types SET end_pos = :end, begin_pos = "
    "greatest(begin_pos, (SELECT min(pos) FROM task_heads WHERE task_heads.type = :type)) WHERE type = :type"
)
# What follows is alone in its transaction and goes to the driver: ADR 0019.
_TOTALS: Final = """
    SELECT type, CAST(sum(due) AS bigint) AS due, CAST(sum(pending) AS bigint) AS pending,
        CAST(sum(running) AS bigint) AS running, min(next_order_time) AS next_order_time, count(*) AS lanes,
        CAST(sum(held) AS bigint) AS held, CAST(sum(retries) AS bigint) AS retries,
        CAST(sum(timeouts) AS bigint) AS timeouts
    FROM task_heads GROUP BY type
"""
_PAGE: Final = (
    f"SELECT {', '.join(OpenLaneRow.__slots__)} FROM task_heads "  # noqa: S608 - constants
    f"WHERE type = $1 AND {_KEYSET.format_after_condition('$2')} {_KEYSET.order_by} LIMIT $3"
)
_NAMED: Final = (
    "SELECT t.type, t.name, h.pos FROM task_types t JOIN task_heads h USING (type) WHERE t.name = ANY($1::text[])"
)
_FIND_HEADS: Final = """
    SELECT pos, number, next_order_time, next_lease_end, due, pending, running, is_full
    FROM task_heads WHERE type = $1
"""
_NOTIFY: Final = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


async def load_heads(database: Database, type_: str) -> dict[int, LaneHead]:
    """Return the heads of a type's open lanes, by position."""
    async with database.connection() as connection:
        rows = await connection.fetch(_FIND_HEADS, type_)
    return {
        row["pos"]: LaneHead(
            number=row["number"],
            next_order_time=row["next_order_time"],
            next_lease_end=row["next_lease_end"],
            due=row["due"],
            pending=row["pending"],
            running=row["running"],
            full=row["is_full"],
        )
        for row in rows
    }


async def notify_head_listeners(database: Database, payloads: Sequence[str]) -> None:
    """Send notifications to the listeners of `HEADS_CHANNEL`."""
    async with database.connection() as connection:
        await connection.execute(_NOTIFY, HEADS_CHANNEL, payloads)


async def list_open_lane_page_plus_one(database: Database, type_: str, after: int, limit: int) -> list[OpenLaneRow]:
    """Return a type's open lanes behind a position, and one more than the limit if another page follows."""
    async with database.connection() as connection:
        return [OpenLaneRow(*row) for row in await connection.fetch(_PAGE, type_, after, limit + 1)]


async def list_open_lanes_by_name(database: Database, names: Collection[str]) -> list[OpenLane]:
    """Return the open lanes of the types with these names, in all projects."""
    async with database.connection() as connection:
        return [OpenLane(*row) for row in await connection.fetch(_NAMED, sorted(names))]


async def sum_open_lanes_by_type(database: Database) -> list[TaskTypeTotals]:
    """Return totals of each type that has an open lane."""
    async with database.connection() as connection:
        return [TaskTypeTotals(*row) for row in await connection.fetch(_TOTALS)]


async def save_checkpoint(database: Database, checkpoint: CheckpointInput) -> LanePassedByTypeResult:
    """Save a lane's head and its ended tasks in one transaction, and notify the API.

    A lane that was started ahead of time is not added to its type before it receives a batch.
    """
    type_, pos = checkpoint.type, checkpoint.pos
    async with database.session() as session:
        if checkpoint.has_no_batch_yet and await _is_beyond_open_lanes(session, type_, pos):
            return LanePassedByTypeResult()
        if checkpoint.ended:
            await archive.archive_ended_tasks_and_delete_unused_texts(session, type_, pos, checkpoint.ended)
        is_past = await add_lanes_and_check_if_type_is_past(session, type_, pos) if checkpoint.is_first else False
        await _save_head_if_newer(session, type_, pos, checkpoint.head, is_first=checkpoint.is_first)
        await database.notify_on_commit(session, HEADS_CHANNEL, f"{type_}/{pos}")
    return LanePassedByTypeResult(is_past=is_past)


async def remove_lane_and_advance_type(database: Database, lane: CloseLaneInput) -> None:
    """Remove a lane: the type then begins with its first open lane, which may be one that is not started yet."""
    async with database.session() as session:
        _, end = (await session.execute(_LOCK_TYPE, {"type": lane.type})).one()
        await session.execute(_REMOVE_LANE, {"type": lane.type, "pos": lane.pos})
        await _insert_lanes_and_extend_range(session, lane.type, max(end, lane.pos + 1), max(end, lane.pos + 1))
        await database.notify_on_commit(session, HEADS_CHANNEL, f"{lane.type}/{lane.pos}")


async def add_lanes_and_check_if_type_is_past(session: Session, type_: str, pos: int) -> bool:
    """Add a lane, and those before it that have no row yet; return whether the type has gone past the position."""
    begin, end = (await session.execute(_LOCK_TYPE, {"type": type_})).one()
    await _insert_lanes_and_extend_range(session, type_, end, max(end, pos))
    return bool(begin > pos)


async def _is_beyond_open_lanes(session: Session, type_: str, pos: int) -> bool:
    _, end = (await session.execute(_LOCK_TYPE, {"type": type_})).one()
    return bool(end < pos)


async def _save_head_if_newer(session: Session, type_: str, pos: int, head: LaneHead, *, is_first: bool) -> None:
    """Save a head, unless a newer one is stored, or its lane is closed."""
    numbers = {name: getattr(head, name) for name in _NUMBERS}
    lane = {"type": type_, "pos": pos, "is_first": is_first, "is_full": head.full}
    await session.execute(_SAVE_HEAD, {**lane, **numbers})


async def _insert_lanes_and_extend_range(session: Session, type_: str, first: int, last: int) -> None:
    await session.execute(_ADD_LANES, {"type": type_, "first": first, "last": last})
    await session.execute(_MOVE_RANGE, {"type": type_, "end": last})


async def count_open_tasks_of_project(database: Database, project_id: str) -> int:
    """Return how many tasks of a project have not ended, at most a second late."""
    async with database.connection() as connection:
        return int(await connection.fetchval(_OPEN, project_id))


async def count_workloads(database: Database) -> WorkByProject:
    """Count pending, running, overdue and recently failed tasks, and paused types, by project."""
    now = datetime.now(UTC)
    moments = (now, now - timedelta(seconds=OVERDUE_SECONDS), now - FAILED_WITHIN)
    now_ms, overdue_ms, failed_ms = (int(moment.timestamp() * 1000) for moment in moments)
    async with database.connection() as connection:
        queues = await connection.fetch(_QUEUES, now_ms, overdue_ms)
        paused = parse_concerns(ConcernKind.PAUSED, await connection.fetch(_PAUSED))
        failed_rows = await connection.fetch(_FAILED, failed_ms)
    overdue = parse_concerns(ConcernKind.OVERDUE, queues)
    waiting = parse_uncounted_concerns(ConcernKind.WAITING, [{**row, "count": row["due"]} for row in queues])
    causes = parse_uncounted_concerns(ConcernKind.FAILED, failed_rows)
    return merge_workloads(parse_workloads(queues), parse_workloads(failed_rows), overdue, waiting, paused, causes)
