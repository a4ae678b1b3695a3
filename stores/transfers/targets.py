"""Targets in the database: their states, and which of them are cancelled.

States are polled for thousands of targets at a time, therefore the statements bypass SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import asyncpg

from domain.transfers.gse import FailedGseCalls
from domain.transfers.models import (
    CANCELLED,
    CANCELLED_UNHEARD,
    FINAL,
    SENT_BEFORE,
    FailureReason,
    TargetEndAndReason,
    TransferState,
)
from infra.database import Database
from stores.keyset import SqlOrderAndAfterCondition
from stores.tables.transfers import ALL_TARGETS

FINAL_STATES = "('" + "', '".join(sorted(FINAL)) + "')"
MESSAGE_MAX_CHARACTERS = 500

IS_IN_TROUBLE = "t.ended_at IS NULL AND t.sending = (s.gse_trouble ->> 'task_number')::int"
"""Whether the call to GSE about a target `t` of the shard `s` fails at present."""

ProjectTarget: TypeAlias = tuple[str, int, str]
"""A target of a project in a job: the job's id, the target's key, the project's id."""

# LATERAL with LIMIT makes one lookup for each target, and OFFSET 0 one by the primary key. Right after a window the
# planner has no statistics of the new rows, and would read them all, or all of a shard.
FIND = f"""
    SELECT n.job_id, n.project_id, found.*
    FROM unnest($1::text[], $2::bigint[], $3::text[]) AS n (job_id, key, project_id)
    CROSS JOIN LATERAL (
        SELECT t.key, t.agent_id, t.container_id, t.state, t.code, t.reason, t.message, t.progress, t.speed,
            t.failures, t.failed_message AS last_failure, t.joined_at, t.ended_at, s.signature, s.target_user, s.folder,
            s.file_name, j.expires_at, j.deadline_at, sent.*,
            CASE WHEN {IS_IN_TROUBLE} THEN s.gse_trouble::text END AS trouble,
            t.ended_at IS NULL AND EXISTS (
                SELECT FROM transfer_cancels c
                WHERE c.job_id = n.job_id AND c.project_id = n.project_id AND c.key IN (n.key, -1)
            ) AS is_cancelling
        FROM transfer_jobs j
        CROSS JOIN LATERAL (SELECT * FROM transfer_targets WHERE job = j.id AND key = n.key OFFSET 0) t
        CROSS JOIN LATERAL (
            SELECT * FROM transfer_shards WHERE job = t.job AND number = t.shard AND project_id = n.project_id OFFSET 0
        ) s
        LEFT JOIN LATERAL (
            SELECT each ->> 'task_id' AS gse_task_id, to_timestamp((each ->> 'sent_at')::float8) AS sent_at,
                to_timestamp((each ->> 'fetched_at')::float8) AS fetched_at,
                to_timestamp((each ->> 'uploaded_at')::float8) AS uploaded_at
            FROM jsonb_array_elements(s.sendings) AS each WHERE (each ->> 'number')::int = t.sending
        ) sent ON true
        WHERE j.job_id = n.job_id LIMIT 1
    ) found
"""  # noqa: S608 - constants only
_PLACE = SqlOrderAndAfterCondition(("t.key",), is_descending=False)
_SELECT = f"""
    SELECT t.job, t.key, t.agent_id, t.container_id, t.state, t.code, t.reason, t.message, t.progress, t.speed,
        t.failures, t.failed_message AS last_failure, t.joined_at, t.ended_at, s.signature, s.target_user, s.folder,
        s.file_name, sent.*, j.job_id, CASE WHEN {IS_IN_TROUBLE} THEN s.gse_trouble::text END AS trouble,
        t.ended_at IS NULL AND EXISTS (
            SELECT FROM transfer_cancels c
            WHERE c.job_id = j.job_id AND c.project_id = s.project_id AND c.key IN (t.key, -1)
        ) AS is_cancelling
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    JOIN transfer_jobs j ON j.id = t.job
    LEFT JOIN LATERAL (
        SELECT to_timestamp((each ->> 'sent_at')::float8) AS sent_at,
            to_timestamp((each ->> 'fetched_at')::float8) AS fetched_at,
            to_timestamp((each ->> 'uploaded_at')::float8) AS uploaded_at
        FROM jsonb_array_elements(s.sendings) AS each WHERE (each ->> 'number')::int = t.sending
    ) sent ON true
"""  # noqa: S608 - constants only
_LIST = f"""
    {_SELECT} WHERE t.job = $1 AND ($2::text IS NULL OR s.project_id = $2) AND {_PLACE.format_after_condition("$3")}
        AND ($4::text IS NULL OR t.state = $4)
        AND ($5::text IS NULL OR t.reason = $5) AND ($6::int IS NULL OR t.code = $6)
        AND ($7::text IS NULL OR t.agent_id = $7)
    {_PLACE.order_by} LIMIT $8
"""
_OF_HOST_PLACE = SqlOrderAndAfterCondition(("t.job", "t.key"))
_OF_HOST = f"""
    {_SELECT} WHERE t.agent_id = $1 AND ($2::text IS NULL OR s.project_id = $2) AND j.expires_at > now()
        AND {_OF_HOST_PLACE.format_after_condition("$3", "$4")}
        AND ($5::text IS NULL OR t.state = $5) AND ($6::text IS NULL OR t.reason = $6)
    {_OF_HOST_PLACE.order_by} LIMIT $7
"""
_FAILED = """
    FROM transfer_targets t JOIN transfer_shards s ON s.job = t.job AND s.number = t.shard
    WHERE t.job = $1 AND s.project_id = $2 AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
        AND ($3::text IS NULL OR t.reason = $3)
"""
_COUNT_FAILED = f"SELECT count(*) {_FAILED}"
_FAILED_HOSTS = f"""
    SELECT s.target_user, s.folder, array_agg(DISTINCT t.agent_id) AS agent_ids {_FAILED}
    GROUP BY s.target_user, s.folder
"""
_CANCELLED = """
    SELECT n.job_id, n.key, n.project_id
    FROM unnest($1::text[], $2::bigint[], $3::text[]) AS n (job_id, key, project_id)
    WHERE EXISTS (
        SELECT FROM transfer_cancels c
        WHERE c.job_id = n.job_id AND c.project_id = n.project_id AND c.key IN (n.key, -1)
    )
"""
_IS_JOB_CANCELLED = """
    SELECT EXISTS (
        SELECT FROM transfer_cancels WHERE job_id = $1 AND ($2::text IS NULL OR project_id = $2) AND key = $3
    )
"""
_CANCEL = """
    INSERT INTO transfer_cancels (job_id, project_id, key)
    SELECT $1, project_id, $3 FROM unnest($2::text[]) AS each (project_id) ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class TargetRow:
    """The state of a target."""

    key: int
    agent_id: str
    container_id: str
    target_user: str
    folder: str
    signature: str
    file_name: str
    state: TransferState
    code: int | None
    reason: FailureReason | None
    message: str
    progress: int
    speed: int
    failures: int
    """How many GSE tasks failed it."""
    last_failure: str
    is_cancelling: bool
    joined_at: datetime | None
    fetched_at: datetime | None
    sent_at: datetime | None
    uploaded_at: datetime | None
    ended_at: datetime | None
    trouble: FailedGseCalls | None
    """The calls to GSE about it, while they fail."""


@dataclass(frozen=True, slots=True)
class TargetDetails(TargetRow):
    """The state of a target, with what only a query for one target returns."""

    gse_task_id: str | None
    deadline_at: datetime
    expires_at: datetime
    """When the retention of the job ends."""


@dataclass(frozen=True, slots=True)
class HostTargetAndJob:
    """A target of a host, and its job."""

    job: int
    """The row's id."""

    job_id: str
    target: TargetRow


@dataclass(frozen=True, slots=True)
class TargetFilter:
    """A filter of the targets of a job; None matches all."""

    state: TransferState | None = None
    reason: FailureReason | None = None
    code: int | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class FailedHostsOfUserAndFolder:
    """The hosts of failed targets with the same user and folder."""

    target_user: str
    folder: str
    agent_ids: Sequence[str]


_Target = TypeVar("_Target", bound=TargetRow)
_LISTED = tuple(each.name for each in fields(TargetRow))
_FOUND = tuple(each.name for each in fields(TargetDetails))


async def find_targets(database: Database, targets: Sequence[ProjectTarget]) -> dict[ProjectTarget, TargetDetails]:
    """Return the states of those of these targets that are in the database."""
    job_ids, keys, project_ids = zip(*targets, strict=True)
    rows = await database.look_up(FIND, job_ids, keys, project_ids)
    return {(row["job_id"], row["key"], row["project_id"]): _build_target(row, TargetDetails, _FOUND) for row in rows}


async def list_target_page_plus_one(
    database: Database, job: int, project_id: str | None, filter_: TargetFilter, after: int, limit: int
) -> list[TargetRow]:
    """Return a page of the targets of a job, in the order of their keys, and one more if another page follows."""
    values = (filter_.state, filter_.reason, filter_.code, filter_.agent_id)
    async with database.connection() as connection:
        rows = await connection.fetch(_LIST, job, project_id, after, *values, limit + 1)
    return [_build_target(row, TargetRow, _LISTED) for row in rows]


async def list_host_target_page_plus_one(
    database: Database,
    agent_id: str,
    project_id: str | None,
    filter_: TargetFilter,
    after: tuple[int, int] | None,
    limit: int,
) -> list[HostTargetAndJob]:
    """Return the targets of a host in all jobs within their retention, newest first, and one more if more follow.

    Args:
        after: Row id of the job, and key, of the last target of the page before.
    """
    place = after or (2**63 - 1, 2**63 - 1)
    async with database.connection() as connection:
        rows = await connection.fetch(_OF_HOST, agent_id, project_id, *place, filter_.state, filter_.reason, limit + 1)
    return [HostTargetAndJob(row["job"], row["job_id"], _build_target(row, TargetRow, _LISTED)) for row in rows]


async def count_failed_without_retry(
    database: Database, job: int, project_id: str, reason: FailureReason | None
) -> int:
    """Count the failed targets of a project that no retry has."""
    async with database.connection() as connection:
        return int(await connection.fetchval(_COUNT_FAILED, job, project_id, reason))


async def list_failed_hosts_without_retry(
    database: Database, job: int, project_id: str, reason: FailureReason | None
) -> list[FailedHostsOfUserAndFolder]:
    """Return the hosts of the failed targets of a project that no retry has."""
    async with database.connection() as connection:
        return [
            FailedHostsOfUserAndFolder(*row) for row in await connection.fetch(_FAILED_HOSTS, job, project_id, reason)
        ]


async def save_cancellation(
    database: Database, job_id: str, project_ids: Sequence[str], key: int = ALL_TARGETS
) -> None:
    """Save that a target, or by default all targets of the projects in the job, are cancelled."""
    async with database.connection() as connection:
        await connection.execute(_CANCEL, job_id, list(project_ids), key)


async def filter_cancelled(database: Database, targets: Sequence[ProjectTarget]) -> set[ProjectTarget]:
    """Return those of these targets that are cancelled, or were when they ended."""
    job_ids, keys, project_ids = zip(*targets, strict=True)
    async with database.connection() as connection:
        rows = await connection.fetch(_CANCELLED, job_ids, keys, project_ids)
    return {(row["job_id"], row["key"], row["project_id"]) for row in rows}


async def is_job_cancelled(database: Database, job_id: str, project_id: str | None) -> bool:
    """Return whether a project, or any project, cancelled all its targets of a job."""
    async with database.connection() as connection:
        return bool(await connection.fetchval(_IS_JOB_CANCELLED, job_id, project_id, ALL_TARGETS))


def _build_target(row: asyncpg.Record, kind: type[_Target], names: Sequence[str]) -> _Target:
    values: dict[str, Any] = {name: row[name] for name in names}
    values["state"] = TransferState(values["state"])
    if values["reason"] is not None:
        values["reason"] = FailureReason(values["reason"])
    if values["trouble"] is not None:
        values["trouble"] = FailedGseCalls.model_validate_json(values["trouble"])
    return kind(**values)


async def list_pending_agents(database: Database, job_id: str, numbers: Sequence[int]) -> list[str]:
    """Return the agents of pending targets in these shards, each once."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            """
            SELECT DISTINCT t.agent_id FROM transfer_targets t JOIN transfer_jobs j ON j.id = t.job
            WHERE j.job_id = $1 AND t.shard = ANY($2::int[]) AND t.state = 'Pending' ORDER BY t.agent_id
            """,
            job_id,
            list(numbers),
        )
    return [row["agent_id"] for row in rows]


async def fail_pending_targets_of_absent_agents(
    database: Database, job_id: str, numbers: Sequence[int], absent: Mapping[str, str]
) -> None:
    """Fail the pending targets in these shards whose agents are absent, unless they are cancelled or being sent.

    Args:
        database: The database of the job.
        job_id: The job of the shards.
        numbers: The numbers of the shards.
        absent: Why each absent agent receives nothing.
    """
    async with database.connection() as connection:
        await connection.execute(_FAIL_ABSENT, job_id, list(numbers), list(absent), list(absent.values()))


_FAIL_ABSENT = f"""
    UPDATE transfer_targets t
    SET state = '{TransferState.FAILED}', reason = '{FailureReason.AGENT_OFFLINE}', ended_at = now(),
        message = 'Nothing was sent: ' || a.why || '. Install or start GSE''s agent on that host, then retry.'
    FROM unnest($3::text[], $4::text[]) AS a (agent_id, why), (
        SELECT s.job, s.number, s.project_id FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        WHERE j.job_id = $1 AND s.number = ANY($2::int[]) AND s.holder IS NULL
        FOR SHARE OF s -- or else a worker that acquires one meanwhile would send to targets that end here
    ) s
    WHERE t.job = s.job AND t.shard = s.number
        AND t.state = '{TransferState.PENDING}' AND t.agent_id = a.agent_id
        AND NOT EXISTS (
            SELECT FROM transfer_cancels c
            WHERE c.job_id = $1 AND c.project_id = s.project_id AND c.key IN (t.key, {ALL_TARGETS})
        )
"""  # noqa: S608 - constants only


async def end_unfinished_targets(
    database: Database, job_id: str, shard_numbers: Sequence[int], outcome: TargetEndAndReason
) -> None:
    """End the unfinished targets of shards, whose holders lose their leases; cancelled targets end as cancelled."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(
            """
            UPDATE transfer_shards SET holder = NULL FROM transfer_jobs
            WHERE transfer_jobs.id = job AND job_id = $1 AND number = ANY($2::int[])
            """,
            job_id,
            list(shard_numbers),
        )
        await connection.execute(
            f"""
            UPDATE transfer_targets t
            SET state = '{TransferState.FAILED}', reason = '{FailureReason.CANCELLED}', ended_at = now(),
                message = CASE WHEN t.sending = 0 THEN $3 ELSE $4 END
            FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
                JOIN transfer_cancels c USING (job_id, project_id)
            WHERE j.job_id = $1 AND s.number = ANY($2::int[]) AND t.job = j.id AND t.shard = s.number
                AND c.key IN (t.key, {ALL_TARGETS}) AND t.state NOT IN {FINAL_STATES}
            """,  # noqa: S608 - constants only
            job_id,
            list(shard_numbers),
            CANCELLED,
            CANCELLED_UNHEARD,
        )
        await connection.execute(
            f"""
            UPDATE transfer_targets t
            SET state = $3, reason = $4, code = coalesce($5, t.failed_code), ended_at = now(),
                message = left($6 || CASE WHEN $9 AND (t.sending <> t.failed_in OR t.message <> t.failed_message)
                    THEN $10 ELSE '' END
                    || CASE WHEN t.failed_message = '' THEN '' ELSE $7 || t.failed_message END, $8)
            FROM transfer_jobs j
            WHERE j.job_id = $1 AND t.job = j.id AND t.shard = ANY($2::int[]) AND t.state NOT IN {FINAL_STATES}
            """,  # noqa: S608 - constants only
            job_id,
            list(shard_numbers),
            outcome.state,
            outcome.reason,
            outcome.code,
            outcome.message,
            " The last try had failed: ",
            MESSAGE_MAX_CHARACTERS,
            outcome.state is TransferState.FAILED,  # a Timeout says by itself what GSE may still do
            SENT_BEFORE,
        )
