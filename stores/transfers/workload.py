"""The workload of transfers: targets of jobs within their retention."""

from __future__ import annotations

from typing import Final

from domain.workload import ItemCount, Workload, Workloads, merge_workloads, read_workloads
from infra.database import Database

JOBS_AT_A_TIME: Final = 20
"""Ended jobs, each of 100,000 targets at most, that one call counts."""

_OPEN: Final = """
    SELECT s.project_id, count(*) FILTER (WHERE t.state = 'Running') AS running,
        min(j.closes_at) FILTER (WHERE t.state = 'Running') AS running_at,
        count(*) FILTER (WHERE t.state = 'Pending') AS waiting,
        min(j.closes_at) FILTER (WHERE t.state = 'Pending') AS waiting_at,
        count(*) FILTER (WHERE t.state IN ('Failed', 'Timeout')) AS failed,
        min(j.closes_at) FILTER (WHERE t.state IN ('Failed', 'Timeout')) AS failed_at
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.finished_at IS NULL AND j.expires_at > now() GROUP BY s.project_id
"""
_ENDED: Final = "SELECT id FROM transfer_jobs WHERE finished_at IS NOT NULL AND expires_at > now() ORDER BY id DESC"
_FAILED: Final = """
    SELECT j.id, s.project_id, count(*) AS failed, min(j.finished_at) AS failed_at
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.id = ANY($1::bigint[]) AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
    GROUP BY j.id, s.project_id
"""


class TransferCounter:
    """Counts targets by project; those of an ended job no longer change and are counted once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ended: dict[int, Workloads] = {}

    async def count(self) -> Workloads:
        """Count the targets of open jobs, and of a few jobs that ended since the last call."""
        async with self._database.connection() as connection:
            open_jobs = read_workloads(await connection.fetch(_OPEN))
            ended = [row["id"] for row in await connection.fetch(_ENDED)]
            new = [id_ for id_ in ended if id_ not in self._ended][:JOBS_AT_A_TIME]
            found = await connection.fetch(_FAILED, new) if new else []
        by_job: dict[int, dict[str, Workload]] = {id_: {} for id_ in new}
        for row in found:
            by_job[row["id"]][row["project_id"]] = Workload(failed=ItemCount(row["failed"], row["failed_at"]))
        known = self._ended | by_job
        self._ended = {id_: known[id_] for id_ in ended if id_ in known}
        return merge_workloads(open_jobs, *self._ended.values())
