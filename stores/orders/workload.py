"""The workload of orders: unfinished slices, and platforms that are not being fetched."""

from __future__ import annotations

from collections import Counter
from typing import Final

from domain.workload import ConcernKind, Workload, Workloads, merge_workloads, read_concerns, read_workloads
from infra.database import Database

_SLICES: Final = """
    SELECT p.project_id, count(*) FILTER (WHERE failed_at IS NULL AND holder IS NOT NULL) AS running,
        min(claimed_at) FILTER (WHERE failed_at IS NULL AND holder IS NOT NULL) AS running_at,
        count(*) FILTER (WHERE failed_at IS NULL AND holder IS NULL) AS waiting,
        min(claimed_at) FILTER (WHERE failed_at IS NULL AND holder IS NULL) AS waiting_at,
        count(failed_at) AS failed, min(failed_at) AS failed_at
    FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE done_at IS NULL AND skipped_at IS NULL AND split_at IS NULL GROUP BY p.project_id
"""
_STANDSTILLS: Final = """
    SELECT project_id, count(unserved_since) AS unserved, count(clock_failed_since) AS clock_unread,
        count(credentials_failed_since) AS credentials_refused
    FROM order_platforms GROUP BY project_id
"""
_STALE: Final = """
    SELECT p.project_id, count(*) FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE s.stale_told_at IS NOT NULL GROUP BY p.project_id
"""
_SWEEPS_FAILED: Final = """
    SELECT p.project_id, count(*) FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE s.done_at IS NOT NULL AND s.swept_at IS NULL AND s.failed_at IS NOT NULL GROUP BY p.project_id
"""


async def count(database: Database) -> Workloads:
    """Count slices that are unfinished, stale or whose sweep failed, and platforms that are not being fetched."""
    async with database.connection() as connection:
        slices = read_workloads(await connection.fetch(_SLICES))
        stale = read_concerns(ConcernKind.STALE, await connection.fetch(_STALE))
        unswept = read_concerns(ConcernKind.SWEEPS_FAILED, await connection.fetch(_SWEEPS_FAILED))
        platforms = await connection.fetch(_STANDSTILLS)
    troubles = (ConcernKind.UNSERVED, ConcernKind.CLOCK_UNREAD, ConcernKind.CREDENTIALS_REFUSED)
    standstills = {
        row["project_id"]: Workload(concerns=+Counter({trouble: row[trouble.value] for trouble in troubles}))
        for row in platforms
    }
    return merge_workloads(slices, stale, unswept, standstills)
