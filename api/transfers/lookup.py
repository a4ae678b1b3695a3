"""Looking up where tasks and jobs stand: in the database once a window has ended, from the engine before that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import asyncpg
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from api.together import Gathered
from api.transfers.kept import Kept
from domain.transfers.states import Reason, State
from services.services import Services
from stores.tables.transfers import ALL_TARGETS
from workflows.transfers import handle as transfers_handle

Wanted: TypeAlias = tuple[str, int, str]
"""A target as a status asks for it: job id, key, and whose it has to be."""

TARGETS_AT_A_TIME = 200
LOOK_SECONDS = 0.5
"""For how long it is good enough that a job was running, whoever wants to know."""

# LATERAL with LIMIT: one look into the indexes for each target. Right after a window the planner knows nothing of the
# rows that it brought, and would read them all.
FOUND = """
    SELECT n.job_id, n.key, n.project_id, found.*
    FROM unnest($1::text[], $2::bigint[], $3::text[]) AS n (job_id, key, project_id)
    CROSS JOIN LATERAL (
        SELECT t.agent_id, t.container_id, t.state, t.code, t.reason, t.message, t.progress, t.speed, t.joined_at,
            t.ended_at, s.signature, s.target_user, s.folder, s.file_name, j.expires_at, sent.*,
            t.ended_at IS NULL AND EXISTS (
                SELECT FROM transfer_cancels c
                WHERE c.job_id = n.job_id AND c.project_id = n.project_id AND c.key IN (n.key, -1)
            ) AS cancelling
        FROM transfer_jobs j
        JOIN transfer_targets t ON t.job = j.id AND t.key = n.key
        JOIN transfer_shards s ON s.job = j.id AND s.number = t.shard AND s.project_id = n.project_id
        LEFT JOIN LATERAL (
            SELECT each ->> 'task_id' AS gse_task_id, to_timestamp((each ->> 'sent_at')::float8) AS sent_at,
                to_timestamp((each ->> 'fetched_at')::float8) AS fetched_at,
                to_timestamp((each ->> 'uploaded_at')::float8) AS uploaded_at
            FROM jsonb_array_elements(s.sendings) AS each WHERE (each ->> 'number')::int = t.sending
        ) sent ON true
        WHERE j.job_id = n.job_id LIMIT 1
    ) found
"""
_CANCELLED = """
    SELECT n.job_id, n.key, n.project_id
    FROM unnest($1::text[], $2::bigint[], $3::text[]) AS n (job_id, key, project_id)
    WHERE EXISTS (
        SELECT FROM transfer_cancels c
        WHERE c.job_id = n.job_id AND c.project_id = n.project_id AND c.key IN (n.key, -1)
    )
"""
_JOB_CANCELLED = """
    SELECT EXISTS (
        SELECT FROM transfer_cancels WHERE job_id = $1 AND ($2::text IS NULL OR project_id = $2) AND key = $3
    )
"""
_RETRIES = """
    SELECT j.job_id FROM transfer_jobs j WHERE j.retry_of = $1 AND EXISTS (
        SELECT FROM transfer_shards s WHERE s.job = j.id AND ($2::text IS NULL OR s.project_id = $2)
    ) ORDER BY j.id
"""
_FAILED = """
    SELECT count(*) FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = $1 AND s.project_id = $2 AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
        AND ($3::text IS NULL OR t.reason = $3)
"""
_FAILED_HOSTS = """
    SELECT s.target_user, s.folder, array_agg(DISTINCT t.agent_id) AS agent_ids
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = $1 AND s.project_id = $2 AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
        AND ($3::text IS NULL OR t.reason = $3)
    GROUP BY s.target_user, s.folder
"""
_JOB = """
    SELECT j.* FROM transfer_jobs j WHERE j.job_id = $1 AND EXISTS (
        SELECT FROM transfer_shards s WHERE s.job = j.id AND ($2::text IS NULL OR s.project_id = $2)
    )
"""
# One of the messages stands for all of a kind.
_COUNTS = """
    SELECT t.state, t.reason, t.code, count(*), min(t.message) AS message
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = $1 AND ($2::text IS NULL OR s.project_id = $2) GROUP BY t.state, t.reason, t.code
"""
_TARGETS = """
    SELECT t.key, t.agent_id, t.container_id, t.state, t.code, t.reason, t.message, t.progress, t.speed, t.joined_at,
        t.ended_at, s.signature, s.target_user, s.folder, s.file_name, sent.*,
        t.ended_at IS NULL AND EXISTS (
            SELECT FROM transfer_cancels c JOIN transfer_jobs j ON j.job_id = c.job_id
            WHERE j.id = t.job AND c.project_id = s.project_id AND c.key IN (t.key, -1)
        ) AS cancelling
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    LEFT JOIN LATERAL (
        SELECT to_timestamp((each ->> 'sent_at')::float8) AS sent_at,
            to_timestamp((each ->> 'fetched_at')::float8) AS fetched_at,
            to_timestamp((each ->> 'uploaded_at')::float8) AS uploaded_at
        FROM jsonb_array_elements(s.sendings) AS each WHERE (each ->> 'number')::int = t.sending
    ) sent ON true
    WHERE t.job = $1 AND ($2::text IS NULL OR s.project_id = $2) AND t.key > $3
        AND ($4::text IS NULL OR t.state = $4)
        AND ($5::text IS NULL OR t.reason = $5) AND ($6::int IS NULL OR t.code = $6)
        AND ($7::text IS NULL OR t.agent_id = $7)
    ORDER BY t.key LIMIT $8
"""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job whose window has ended, as a project sees it."""

    id: int
    closes_at: datetime
    deadline_at: datetime
    finished_at: datetime | None
    expires_at: datetime
    retry_of: str | None
    ends: Sequence[asyncpg.Record]
    """How many targets stand where, and why."""

    @property
    def counts(self) -> dict[State, int]:
        """How many targets stand where."""
        counts = Counter[State]()
        for each in self.ends:
            counts[State(each["state"])] += each["count"]
        return dict(counts)


@dataclass(frozen=True, slots=True)
class Which:
    """Which targets of a job are looked for; None for any."""

    state: State | None = None
    reason: Reason | None = None
    code: int | None = None
    agent_id: str | None = None


class Lookup:
    """Where tasks and jobs stand."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._looks: dict[str, asyncio.Task[bool]] = {}
        self._targets = Gathered(self._find, TARGETS_AT_A_TIME)
        self._cancelled = Gathered(self._find_cancelled, TARGETS_AT_A_TIME)
        # Of jobs that are over: to count 50,000 targets for each page of them would take longer than the page.
        self._ends: Kept[tuple[int, str | None], Sequence[asyncpg.Record]] = Kept()

    async def target(self, job_id: str, key: int, project_id: str) -> asyncpg.Record | None:
        """What is written of a target; nothing before its window has ended, nor when its time is over."""
        return await self._targets.ask((job_id, key, project_id))

    async def _find(self, wanted: Sequence[Wanted]) -> dict[Wanted, asyncpg.Record]:
        job_ids, keys, project_ids = zip(*wanted, strict=True)
        async with self._database.connection() as connection:
            rows = await connection.fetch(FOUND, job_ids, keys, project_ids)
        return {(row["job_id"], row["key"], row["project_id"]): row for row in rows}

    async def is_cancelled(self, job_id: str, key: int, project_id: str) -> bool:
        """Whether a target is no longer wanted, or was not when it ended."""
        return await self._cancelled.ask((job_id, key, project_id)) is not None

    async def _find_cancelled(self, wanted: Sequence[Wanted]) -> dict[Wanted, asyncpg.Record]:
        job_ids, keys, project_ids = zip(*wanted, strict=True)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_CANCELLED, job_ids, keys, project_ids)
        return {(row["job_id"], row["key"], row["project_id"]): row for row in rows}

    async def is_job_cancelled(self, job_id: str, project_id: str | None) -> bool:
        """Whether a project, or any, no longer wants what it has in a job."""
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_JOB_CANCELLED, job_id, project_id, ALL_TARGETS))

    async def retries(self, job_id: str, project_id: str | None) -> list[str]:
        """The jobs that send a project's targets of this one again, the first one first."""
        async with self._database.connection() as connection:
            return [row["job_id"] for row in await connection.fetch(_RETRIES, job_id, project_id)]

    async def failed(self, job: int, project_id: str, reason: Reason | None) -> int:
        """How many targets of a project failed, and are not sent again by another job."""
        async with self._database.connection() as connection:
            return int(await connection.fetchval(_FAILED, job, project_id, reason))

    async def failed_hosts(self, job: int, project_id: str, reason: Reason | None) -> Sequence[asyncpg.Record]:
        """The hosts of these targets, by the user and the folder that files are written by and to."""
        async with self._database.connection() as connection:
            return await connection.fetch(_FAILED_HOSTS, job, project_id, reason)

    async def job(self, job_id: str, project_id: str | None) -> JobRow | None:
        """What is written of a job, if the project has targets in it; None is for all projects."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_JOB, job_id, project_id)
            known = self._ends.get((row["id"], project_id)) if row else None
            found = known or (await connection.fetch(_COUNTS, row["id"], project_id) if row else [])
        if row is None:
            return None
        if row["finished_at"] is not None and row["purged_at"] is None and not known:
            self._ends.keep((row["id"], project_id), found)
        return JobRow(
            id=row["id"],
            closes_at=row["closes_at"],
            deadline_at=row["deadline_at"],
            finished_at=row["finished_at"],
            expires_at=row["expires_at"],
            retry_of=row["retry_of"],
            ends=found,
        )

    async def targets(
        self, job: int, project_id: str | None, which: Which, after: int, limit: int
    ) -> Sequence[asyncpg.Record]:
        """Targets of a job in the order of their keys."""
        async with self._database.connection() as connection:
            return await connection.fetch(
                _TARGETS, job, project_id, after, which.state, which.reason, which.code, which.agent_id, limit
            )

    async def cancel(self, job_id: str, project_id: str, key: int = ALL_TARGETS) -> None:
        """Note that a target, or all that the project has in the job, is no longer wanted."""
        async with self._database.connection() as connection:
            await connection.execute(
                "INSERT INTO transfer_cancels (job_id, project_id, key) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                job_id,
                project_id,
                key,
            )

    async def joined(self, job_id: str, project_id: str | None) -> int:
        """How many targets a project, or all of them, have in a job that is running; asked of the job itself."""
        try:
            return await transfers_handle.count_joined(self._engine, job_id, project_id)
        except WorkflowQueryRejectedError:
            return 0
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return 0
            raise

    async def close_to(self, job_id: str, project_id: str) -> None:
        """Let no more targets of the project into a job; one that is over lets nobody in anyway."""
        try:
            await transfers_handle.close_to(self._engine, job_id, project_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def is_running(self, job_id: str) -> bool:
        """Whether the job's workflow runs; half a second ago is good enough."""
        look = self._looks.get(job_id)
        if look is None:
            look = self._looks[job_id] = asyncio.create_task(self._describe(job_id))
            look.add_done_callback(
                lambda _: asyncio.get_running_loop().call_later(LOOK_SECONDS, self._looks.pop, job_id, None)
            )
        return await asyncio.shield(look)

    async def _describe(self, job_id: str) -> bool:
        try:
            description = await self._engine.get_workflow_handle(job_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return description.status is WorkflowExecutionStatus.RUNNING


def is_over(expires_at: datetime) -> bool:
    """Whether the time is over for which this is kept."""
    return expires_at <= datetime.now(UTC)
