"""What the overview counts of transfers: targets by project that run, wait or failed, and what is wrong with them.

The statements about targets have a row for each project, with the columns that `domain.workload` reads:

- `running`, `waiting` and `failed` are numbers of targets; `running_at`, `waiting_at` and `failed_at` say since when
  the oldest is there: in an open job since the end of its window, in an ended one since the job's end.
- `count`, `subject` and `cause` describe a concern; the subject is empty, as no target has a page in the overview.
"""

from __future__ import annotations

from typing import Final

from domain.workload import (
    ConcernKind,
    WorkByProject,
    merge_workloads,
    parse_concerns,
    parse_uncounted_concerns,
    parse_workloads,
)
from infra.database import Database
from stores.transfers.jobs import TROUBLE_COLUMNS, parse_failed_gse_calls
from stores.transfers.targets import IS_IN_TROUBLE

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
_FAILING_AT_GSE: Final = f"""
    SELECT s.project_id, count(*), {TROUBLE_COLUMNS}
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.finished_at IS NULL AND j.expires_at > now() AND {IS_IN_TROUBLE} GROUP BY s.project_id
"""  # noqa: S608 - constants only
# A retry takes failed targets away from the job in the transaction that saves it.
_ENDED: Final = """
    SELECT j.id, (SELECT max(r.id) FROM transfer_jobs r WHERE r.retry_of = j.job_id) AS last_retry FROM transfer_jobs j
    WHERE j.finished_at IS NOT NULL AND j.expires_at > now() ORDER BY j.id DESC
"""
_FAILED: Final = """
    SELECT j.id, s.project_id, '' AS subject, coalesce(t.reason, '') AS cause, count(*), count(*) AS failed,
        min(j.finished_at) AS failed_at, 0 AS running, NULL::timestamptz AS running_at, 0 AS waiting,
        NULL::timestamptz AS waiting_at
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.id = ANY($1::bigint[]) AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
    GROUP BY j.id, s.project_id, t.reason
"""


class TransferTargetCounter:
    """Counts targets by project; those of an ended job are counted once, and again after each retry of it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ended: dict[tuple[int, int | None], WorkByProject] = {}
        """By an ended job and the last retry of it."""

    async def count_workloads(self) -> WorkByProject:
        """Count the targets of open jobs, and of a few jobs that ended or were retried since the last call."""
        async with self._database.connection() as connection:
            open_jobs = parse_workloads(await connection.fetch(_OPEN))
            failing = [
                {**dict(row), "subject": "", "cause": parse_failed_gse_calls(row).describe()}
                for row in await connection.fetch(_FAILING_AT_GSE)
            ]
            ended = [(row["id"], row["last_retry"]) for row in await connection.fetch(_ENDED)]
            new = [each for each in ended if each not in self._ended][:JOBS_AT_A_TIME]
            found = await connection.fetch(_FAILED, [id_ for id_, _ in new]) if new else []
        counted: dict[tuple[int, int | None], WorkByProject] = {}
        for job in new:
            rows = [row for row in found if row["id"] == job[0]]
            counted[job] = merge_workloads(parse_workloads(rows), parse_uncounted_concerns(ConcernKind.FAILED, rows))
        known = self._ended | counted
        self._ended = {job: known[job] for job in ended if job in known}
        return merge_workloads(open_jobs, parse_concerns(ConcernKind.GSE_FAILS, failing), *self._ended.values())
