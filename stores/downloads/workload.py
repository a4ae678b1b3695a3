"""The workload of downloads, counted by partial indexes on unfinished rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from domain.workload import Workloads, read_workloads
from infra.database import Database

FAILED_WITHIN: Final = timedelta(days=1)
"""Failures count for a day only, since a failed download needs no action."""

_COUNTS: Final = """
    SELECT project_id, count(*) FILTER (WHERE state = 'running') AS running,
        min(coalesce(started_at, created_at)) FILTER (WHERE state = 'running') AS running_at,
        count(*) FILTER (WHERE state = 'pending') AS waiting,
        min(created_at) FILTER (WHERE state = 'pending') AS waiting_at, 0 AS failed, NULL::timestamptz AS failed_at
    FROM downloads WHERE state IN ('pending', 'running') GROUP BY project_id
    UNION ALL
    SELECT project_id, 0, NULL, 0, NULL, count(*), min(finished_at)
    FROM downloads WHERE state = 'failed' AND finished_at > now() - $1::interval GROUP BY project_id
"""


async def count_downloads(database: Database) -> Workloads:
    """Count the downloads that have a row; those that no worker has taken up yet have none."""
    async with database.connection() as connection:
        return read_workloads(await connection.fetch(_COUNTS, FAILED_WITHIN))
