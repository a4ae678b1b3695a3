"""The workload of tasks for the overview, from the heads of lanes and the archive."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Final

from domain.tasks.messages import TaskStatus
from domain.workload import ConcernKind, ItemCount, Workload, Workloads, merge_workloads, read_concerns, read_workloads
from infra.database import Database

FAILED_WITHIN: Final = timedelta(days=1)
"""Failed tasks need no action, so the overview shows recent ones only."""
OVERDUE_SECONDS: Final = 60.0

_QUEUES: Final = """
    SELECT t.project_id, sum(h.running)::bigint AS running, NULL::timestamptz AS running_at,
        sum(h.pending)::bigint AS waiting,
        to_timestamp(min(h.next_order_time) FILTER (WHERE h.next_order_time <= $1) / 1000.0) AS waiting_at,
        0 AS failed, NULL::timestamptz AS failed_at,
        coalesce(sum(h.due) FILTER (WHERE h.next_order_time <= $2 AND NOT t.paused), 0)::bigint AS overdue
    FROM task_heads h JOIN task_types t USING (type) GROUP BY t.project_id
"""
_PAUSED: Final = "SELECT project_id, count(*) FROM task_types WHERE paused GROUP BY project_id"
_FAILED: Final = """
    SELECT t.project_id, count(*) AS failed, to_timestamp(min(a.modify_time) / 1000.0) AS failed_at
    FROM task_types t JOIN tasks_archive a ON a.type = t.type AND a.status = $1 AND a.create_time > $2
    GROUP BY t.project_id
"""


async def count(database: Database) -> Workloads:
    """Count pending, running, overdue and recently failed tasks, and paused types, by project."""
    now = datetime.now(UTC)
    moments = (now, now - timedelta(seconds=OVERDUE_SECONDS), now - FAILED_WITHIN)
    now_ms, overdue_ms, failed_ms = (int(moment.timestamp() * 1000) for moment in moments)
    async with database.connection() as connection:
        queues = await connection.fetch(_QUEUES, now_ms, overdue_ms)
        paused = read_concerns(ConcernKind.PAUSED, await connection.fetch(_PAUSED))
        failed_rows = await connection.fetch(_FAILED, TaskStatus.FAILED, failed_ms)
    overdue = {row["project_id"]: Workload(concerns=Counter({ConcernKind.OVERDUE: row["overdue"]})) for row in queues}
    failed = {row["project_id"]: Workload(failed=ItemCount(row["failed"], row["failed_at"])) for row in failed_rows}
    return merge_workloads(read_workloads(queues), overdue, paused, failed)
