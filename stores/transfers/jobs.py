"""Jobs in the database, once their window has ended, and how many targets they have.

A job counts for a project by the targets that the project has in it; None for a project means all projects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from domain.transfers.gse import FailedGseCalls
from domain.transfers.models import FailureReason, TransferState
from infra.database import Database
from stores.keyset import SqlOrderAndAfterCondition
from stores.transfers.targets import IS_IN_TROUBLE

_FIND = """
    SELECT j.* FROM transfer_jobs j WHERE j.job_id = $1 AND EXISTS (
        SELECT FROM transfer_shards s WHERE s.job = j.id AND ($2::text IS NULL OR s.project_id = $2)
    )
"""
# Calls to GSE may fail for several shards at a time. Of these are shown one of the answers, as each names its own
# request, the most tries of one call, and the time of the call that comes next.
TROUBLE_COLUMNS = """
    min(s.gse_trouble ->> 'answer') AS answer,
    max((s.gse_trouble ->> 'tries')::int) AS tries, min((s.gse_trouble ->> 'again_at')::float8) AS again_at
"""
# One message is returned for each combination of state, reason and code.
_COUNT_OUTCOMES = f"""
    SELECT t.state, t.reason, t.code, count(*), min(t.message) AS message,
        coalesce({IS_IN_TROUBLE}, false) AS in_trouble, {TROUBLE_COLUMNS}
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = $1 AND ($2::text IS NULL OR s.project_id = $2) GROUP BY t.state, t.reason, t.code, in_trouble
"""  # noqa: S608 - constants only
_RETRIES = """
    SELECT j.job_id FROM transfer_jobs j WHERE j.retry_of = $1 AND EXISTS (
        SELECT FROM transfer_shards s WHERE s.job = j.id AND ($2::text IS NULL OR s.project_id = $2)
    ) ORDER BY j.id
"""
# Keys are in the order of the windows, because jobs are inserted in that order.
_PLACE = SqlOrderAndAfterCondition(("j.id",))
_LIST = f"""
    SELECT j.* FROM transfer_jobs j
    WHERE j.expires_at > now() AND ($1::bigint IS NULL OR {_PLACE.format_after_condition("$1")})
        AND ($2::text IS NULL OR EXISTS (SELECT FROM transfer_shards s WHERE s.job = j.id AND s.project_id = $2))
        AND strpos(lower(j.job_id), lower($3)) > 0 AND ($4::bool IS NULL OR (j.finished_at IS NOT NULL) = $4)
        AND ($5::text IS NULL OR EXISTS (SELECT FROM transfer_targets t WHERE t.job = j.id AND t.reason = $5))
        AND ($6::timestamptz IS NULL OR j.closes_at >= $6) AND ($7::timestamptz IS NULL OR j.closes_at < $7)
    {_PLACE.order_by} LIMIT $8
"""  # noqa: S608 - constants only
_COUNT_STATES = """
    SELECT t.job, t.state, count(*) FROM transfer_targets t
    JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = ANY($1::bigint[]) AND ($2::text IS NULL OR s.project_id = $2) GROUP BY t.job, t.state
"""
_COUNT_OPEN = """
    SELECT j.job_id, count(*) FILTER (WHERE t.state IN ('Pending', 'Running'))
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.finished_at IS NULL AND j.expires_at > now() AND s.project_id = $1 GROUP BY j.job_id
"""
_SELECT_SAVED = "SELECT job_id FROM transfer_jobs WHERE job_id = ANY($1::text[])"


@dataclass(frozen=True, slots=True)
class TransferJobIdAndTimes:
    """A row of a job."""

    id: int
    """Its key within the tables of transfers."""
    job_id: str
    """The id that callers know."""
    closes_at: datetime
    deadline_at: datetime
    finished_at: datetime | None
    expires_at: datetime
    purged_at: datetime | None
    """When its targets were purged."""

    retry_of: str | None


@dataclass(frozen=True, slots=True)
class TargetOutcomeCount:
    """How many targets of a job have a state, a reason and a code."""

    state: TransferState
    reason: FailureReason | None
    code: int | None
    count: int
    message: str
    """The message of one of them."""

    trouble: FailedGseCalls | None = None
    """The calls to GSE about them, while they fail; those of one of their shards."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None matches all."""

    search: str = ""
    """Only jobs whose id contains this text, in any case."""

    ended: bool | None = None
    reason: FailureReason | None = None
    """Only jobs of which a target failed for this reason."""

    window_closes_after: datetime | None = None
    window_closes_before: datetime | None = None


_NAMES = tuple(TransferJobIdAndTimes.__slots__)


async def find_job(database: Database, job_id: str, project_id: str | None) -> TransferJobIdAndTimes | None:
    """Return a job that the project has targets in."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_FIND, job_id, project_id)
    return None if row is None else TransferJobIdAndTimes(*(row[name] for name in _NAMES))


async def count_outcomes(database: Database, job_key: int, project_id: str | None) -> list[TargetOutcomeCount]:
    """Count the targets of a job by state, reason and code."""
    async with database.connection() as connection:
        rows = await connection.fetch(_COUNT_OUTCOMES, job_key, project_id)
    return [
        TargetOutcomeCount(
            state=TransferState(row["state"]),
            reason=None if row["reason"] is None else FailureReason(row["reason"]),
            code=row["code"],
            count=row["count"],
            message=row["message"],
            trouble=parse_failed_gse_calls(row) if row["in_trouble"] else None,
        )
        for row in rows
    ]


def parse_failed_gse_calls(row: asyncpg.Record) -> FailedGseCalls:
    """Read the failed calls to GSE of one or several shards from the columns `TROUBLE_COLUMNS`."""
    # The number of a GSE task means nothing outside of its shard, so none is read.
    return FailedGseCalls(task_number=0, answer=row["answer"], tries=row["tries"], again_at=row["again_at"])


async def count_targets_by_state(
    database: Database, job_keys: Sequence[int], project_id: str | None
) -> dict[int, dict[TransferState, int]]:
    """Count the targets of each job by state."""
    counts: dict[int, dict[TransferState, int]] = {job_key: {} for job_key in job_keys}
    async with database.connection() as connection:
        for row in await connection.fetch(_COUNT_STATES, list(job_keys), project_id):
            counts[row["job"]][TransferState(row["state"])] = row["count"]
    return counts


async def list_retry_job_ids(database: Database, job_id: str, project_id: str | None) -> list[str]:
    """Return the jobs that retry a project's targets of this one, oldest first."""
    async with database.connection() as connection:
        return [row["job_id"] for row in await connection.fetch(_RETRIES, job_id, project_id)]


async def list_job_page_plus_one(
    database: Database, project_id: str | None, filters: JobFilter, before: int | None, limit: int
) -> list[TransferJobIdAndTimes]:
    """Return a page of jobs within their retention, newest first, and one more if another page follows.

    Args:
        before: The key of the last row of the previous page.
    """
    values = (filters.search, filters.ended, filters.reason, filters.window_closes_after, filters.window_closes_before)
    async with database.connection() as connection:
        rows = await connection.fetch(_LIST, before, project_id, *values, limit + 1)
    return [TransferJobIdAndTimes(*(row[name] for name in _NAMES)) for row in rows]


async def count_unfinished_targets_by_open_job(database: Database, project_id: str) -> dict[str, int]:
    """Return the jobs of a project that have not ended, each with how many of its targets have not."""
    async with database.connection() as connection:
        return {row["job_id"]: row["count"] for row in await connection.fetch(_COUNT_OPEN, project_id)}


async def filter_saved_job_ids(database: Database, job_ids: Sequence[str]) -> set[str]:
    """Return those of these jobs that are in the database."""
    async with database.connection() as connection:
        return {row["job_id"] for row in await connection.fetch(_SELECT_SAVED, job_ids)}


@dataclass(frozen=True, slots=True)
class JobTargetOutcomeCounts:
    """How the targets of a job ended."""

    counts: dict[tuple[TransferState, str], int]
    """Targets by state and reason; the reason of a success is empty."""
    seconds: float | None
    """Since the end of its window; None if the job had been marked as ended before."""

    def count_by_state(self) -> dict[TransferState, int]:
        """Return how many targets ended in each state."""
        states = Counter[TransferState]()
        for (state, _), count in self.counts.items():
            states[state] += count
        return dict(states)


async def mark_job_ended_and_count_outcomes(
    database: Database, job_id: str, retention: timedelta
) -> JobTargetOutcomeCounts:
    """Mark a job as ended, and keep it for its retention from now on; return how its targets ended."""
    async with database.connection() as connection, connection.transaction():
        rows = await connection.fetch(
            """
            SELECT t.state, coalesce(t.reason, '') AS reason, count(*)
            FROM transfer_targets t JOIN transfer_jobs j ON j.id = t.job
            WHERE j.job_id = $1 GROUP BY 1, 2
            """,
            job_id,
        )
        seconds: float | None = await connection.fetchval(
            """
            UPDATE transfer_jobs SET finished_at = now(),
                expires_at = CASE WHEN purged_at IS NULL THEN now() + $2 ELSE expires_at END
            WHERE job_id = $1 AND finished_at IS NULL
            RETURNING extract(epoch FROM now() - closes_at)::float8
            """,
            job_id,
            retention,
        )
    return JobTargetOutcomeCounts({(TransferState(row["state"]), row["reason"]): row["count"] for row in rows}, seconds)


async def purge_expired_targets_and_count_jobs(database: Database, jobs_max: int) -> int:
    """Delete the targets of a batch of jobs past their retention; return how many jobs. Their rows stay."""
    async with database.connection() as connection, connection.transaction():
        rows = await connection.fetch(
            """
            SELECT id, job_id FROM transfer_jobs WHERE expires_at <= now() AND purged_at IS NULL
            ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED -- one that ends at this moment is kept
            """,
            jobs_max,
        )
        jobs, job_ids = [row["id"] for row in rows], [row["job_id"] for row in rows]
        await connection.execute("DELETE FROM transfer_targets WHERE job = ANY($1::bigint[])", jobs)
        await connection.execute("DELETE FROM transfer_cancels WHERE job_id = ANY($1::text[])", job_ids)
        await connection.execute("UPDATE transfer_jobs SET purged_at = now() WHERE id = ANY($1::bigint[])", jobs)
    return len(jobs)


async def delete_job_rows_after_target_purge(database: Database, retention: timedelta) -> None:
    """Delete jobs whose targets were purged longer ago than this retention."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_jobs WHERE purged_at < now() - $1::interval", retention)


async def purge_cancellations(database: Database, older_than: timedelta) -> None:
    """Delete old cancellations, which are left of jobs that were never saved."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_cancels WHERE cancelled_at < now() - $1::interval", older_than)
