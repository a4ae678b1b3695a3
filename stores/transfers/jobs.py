"""Jobs whose window has ended, as a project sees them, or with None for a project as all do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.transfers.models import Reason, State
from infra.database import Database

_FIND = """
    SELECT j.* FROM transfer_jobs j WHERE j.job_id = $1 AND EXISTS (
        SELECT FROM transfer_shards s WHERE s.job = j.id AND ($2::text IS NULL OR s.project_id = $2)
    )
"""
# One of the messages stands for all of a kind.
_COUNT_ENDS = """
    SELECT t.state, t.reason, t.code, count(*), min(t.message) AS message
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = $1 AND ($2::text IS NULL OR s.project_id = $2) GROUP BY t.state, t.reason, t.code
"""
_RETRIES = """
    SELECT j.job_id FROM transfer_jobs j WHERE j.retry_of = $1 AND EXISTS (
        SELECT FROM transfer_shards s WHERE s.job = j.id AND ($2::text IS NULL OR s.project_id = $2)
    ) ORDER BY j.id
"""
# By the key: jobs are written down in the order of their windows.
_LIST = """
    SELECT j.* FROM transfer_jobs j
    WHERE j.expires_at > now() AND ($1::bigint IS NULL OR j.id < $1)
        AND ($2::text IS NULL OR EXISTS (SELECT FROM transfer_shards s WHERE s.job = j.id AND s.project_id = $2))
        AND strpos(lower(j.job_id), lower($3)) > 0 AND ($4::bool IS NULL OR (j.finished_at IS NOT NULL) = $4)
    ORDER BY j.id DESC LIMIT $5
"""
_COUNT_STATES = """
    SELECT t.job, t.state, count(*) FROM transfer_targets t
    JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = ANY($1::bigint[]) AND ($2::text IS NULL OR s.project_id = $2) GROUP BY t.job, t.state
"""
_RECORDED = "SELECT job_id FROM transfer_jobs WHERE job_id = ANY($1::text[])"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job that is written down."""

    id: int
    job_id: str
    closes_at: datetime
    deadline_at: datetime
    finished_at: datetime | None
    expires_at: datetime
    purged_at: datetime | None
    """Since when its targets are gone."""

    retry_of: str | None


@dataclass(frozen=True, slots=True)
class EndCount:
    """How many targets of a job stand in a state, for a reason and with a code."""

    state: State
    reason: Reason | None
    code: int | None
    count: int
    message: str
    """That of one of them."""


_NAMES = tuple(JobRow.__slots__)


async def find(database: Database, job_id: str, project_id: str | None) -> JobRow | None:
    """A job that the project has targets in."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_FIND, job_id, project_id)
    return None if row is None else JobRow(*(row[name] for name in _NAMES))


async def count_ends(database: Database, job: int, project_id: str | None) -> list[EndCount]:
    """How many targets of a job stand where, and why."""
    async with database.connection() as connection:
        rows = await connection.fetch(_COUNT_ENDS, job, project_id)
    return [
        EndCount(
            state=State(row["state"]),
            reason=None if row["reason"] is None else Reason(row["reason"]),
            code=row["code"],
            count=row["count"],
            message=row["message"],
        )
        for row in rows
    ]


async def count_states(database: Database, jobs: Sequence[int], project_id: str | None) -> dict[int, dict[State, int]]:
    """How many targets of each of these jobs stand where."""
    counts: dict[int, dict[State, int]] = {job: {} for job in jobs}
    async with database.connection() as connection:
        for row in await connection.fetch(_COUNT_STATES, list(jobs), project_id):
            counts[row["job"]][State(row["state"])] = row["count"]
    return counts


async def list_retries(database: Database, job_id: str, project_id: str | None) -> list[str]:
    """The jobs that send a project's targets of this one again, the first one first."""
    async with database.connection() as connection:
        return [row["job_id"] for row in await connection.fetch(_RETRIES, job_id, project_id)]


async def list_page(
    database: Database, project_id: str | None, search: str, ended: bool | None, before: int | None, limit: int
) -> list[JobRow]:
    """Jobs that can still be asked about, the newest first, and one more if another page follows.

    Args:
        search: Only jobs whose id holds this text, in any case.
        ended: Only those all of whose targets have ended, or only the others.
        before: The row that the page before ended with.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(_LIST, before, project_id, search, ended, limit + 1)
    return [JobRow(*(row[name] for name in _NAMES)) for row in rows]


async def list_recorded(database: Database, job_ids: Sequence[str]) -> set[str]:
    """Those of these jobs that are written down."""
    async with database.connection() as connection:
        return {row["job_id"] for row in await connection.fetch(_RECORDED, job_ids)}


async def finish(database: Database, job_id: str, kept: timedelta) -> dict[State, int]:
    """The job has ended: from now on it is kept for a while. Says how many targets ended how."""
    async with database.connection() as connection, connection.transaction():
        rows = await connection.fetch(
            """
            SELECT t.state, count(*) FROM transfer_targets t JOIN transfer_jobs j ON j.id = t.job
            WHERE j.job_id = $1 GROUP BY t.state
            """,
            job_id,
        )
        await connection.execute(
            """
            UPDATE transfer_jobs SET finished_at = now(), expires_at = now() + $2
            WHERE job_id = $1 AND finished_at IS NULL
            """,
            job_id,
            kept,
        )
    return {State(row["state"]): row["count"] for row in rows}


async def purge_targets(database: Database, batch: int) -> int:
    """Remove the targets of some jobs whose time is over; says of how many. The job itself stays known for a while."""
    async with database.connection() as connection, connection.transaction():
        rows = await connection.fetch(
            """
            SELECT id, job_id FROM transfer_jobs WHERE expires_at <= now() AND purged_at IS NULL
            ORDER BY expires_at LIMIT $1
            """,
            batch,
        )
        jobs, job_ids = [row["id"] for row in rows], [row["job_id"] for row in rows]
        await connection.execute("DELETE FROM transfer_targets WHERE job = ANY($1::bigint[])", jobs)
        await connection.execute("DELETE FROM transfer_cancels WHERE job_id = ANY($1::text[])", job_ids)
        await connection.execute("UPDATE transfer_jobs SET purged_at = now() WHERE id = ANY($1::bigint[])", jobs)
    return len(jobs)


async def purge(database: Database, known_for: timedelta) -> None:
    """Remove jobs whose targets have been gone for so long: nobody is told any more that they were there."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_jobs WHERE purged_at < now() - $1::interval", known_for)


async def purge_cancels(database: Database, older_than: timedelta) -> None:
    """Remove what was cancelled in jobs that nobody ever joined."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_cancels WHERE cancelled_at < now() - $1::interval", older_than)
