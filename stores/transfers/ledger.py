"""What is written down of jobs, from the end of their window until nobody asks any more.

Where a target stands is written here and in `shards`, and a final state is overwritten by neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import TypeAlias

import asyncpg

from domain.transfers.joining import JobOrder, JoinGroup, Lot, Retry, Roll, Shard
from domain.transfers.request import Consignment
from domain.transfers.shipment import CANCELLED, CANCELLED_UNHEARD
from domain.transfers.states import FINAL, End, Reason, State
from domain.transfers.steps import ShardPlace
from infra.database import Database
from stores.tables.transfers import ALL_TARGETS

UNFINISHED_FOR = timedelta(hours=1)
"""A job whose workflow was ended by hand is forgotten so long after its deadline."""

MESSAGE_MAX_CHARACTERS = 500

FINAL_STATES = "('" + "', '".join(sorted(FINAL)) + "')"
_COLUMNS = (
    *("job", "key", "shard", "agent_id", "container_id"),
    *("state", "sending", "failures", "failed_in", "message", "progress", "speed", "joined_at"),
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def freeze(database: Database, order: JobOrder, shards: Sequence[Shard]) -> None:
    """Write shards and their targets; those that are there already stay as they are."""
    async with database.connection() as connection, connection.transaction():
        await _write_shards(connection, await _job(connection, order), shards)


async def _write_shards(connection: Connection, job: int, shards: Sequence[Shard]) -> None:
    for shard in shards:
        if await _insert_shard(connection, job, shard):
            # A job that began under the version before does not know when its targets joined.
            times = [datetime.fromtimestamp(each, UTC) for each in shard.joined_at] or repeat(None)
            rows = [
                (job, key, shard.number, agent_id, container_id, State.PENDING, 0, 0, 0, "", 0, 0, joined_at)
                for (key, agent_id, container_id), joined_at in zip(shard.targets, times, strict=False)
            ]
            await connection.copy_records_to_table("transfer_targets", records=rows, columns=_COLUMNS)


async def failed(database: Database, retry: Retry) -> list[Lot]:
    """The targets of a job that failed and that no other job sends again, by what they want."""
    async with database.connection() as connection:
        rows = await connection.fetch(_FAILED, retry.job_id, retry.project_id, retry.reason)
    lots: dict[Consignment, Lot] = {}
    for row in rows:
        consignment = Consignment(
            project_id=row["project_id"],
            signature=row["signature"],
            user=row["target_user"],
            folder=row["folder"],
        )
        lot = lots.setdefault(consignment, Lot(consignment=consignment, file_name=row["file_name"], targets=[]))
        lot.targets.append((row["key"], row["agent_id"], row["container_id"]))
    return list(lots.values())


async def freeze_retry(database: Database, order: JobOrder, retry: Retry) -> list[ShardPlace]:
    """Write the failed targets of an earlier job as shards of this one, once; they belong to no other retry then."""
    roll = Roll(order)
    roll.take(JoinGroup(lots=await failed(database, retry)), order.closes_at)
    shards = roll.shards()
    async with database.connection() as connection, connection.transaction():
        job = await _job(connection, order)
        written = await connection.fetch(_WRITTEN, job)
        if written:
            return [ShardPlace.model_validate(dict(row)) for row in written]
        keys = [key for shard in shards for key, _, _ in shard.targets]
        taken = {row["key"] for row in await connection.fetch(_TAKE_FAILED, retry.job_id, keys)}
        for shard in shards:
            shard.targets = [target for target in shard.targets if target[0] in taken]
            shard.joined_at = [order.closes_at.timestamp()] * len(shard.targets)
        shards = [shard for shard in shards if shard.targets]
        await _write_shards(connection, job, shards)
    return [ShardPlace.of(shard) for shard in shards]


_WRITTEN = """
    SELECT s.number, s.signature, count(t.key) AS targets
    FROM transfer_shards s LEFT JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE s.job = $1 GROUP BY s.number, s.signature ORDER BY s.number
"""
_FAILED = """
    SELECT t.key, t.agent_id, t.container_id, s.project_id, s.signature, s.target_user, s.folder, s.file_name
    FROM transfer_jobs j JOIN transfer_targets t ON t.job = j.id
    JOIN transfer_shards s ON s.job = j.id AND s.number = t.shard
    WHERE j.job_id = $1 AND s.project_id = $2 AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
        AND ($3::text IS NULL OR t.reason = $3)
    ORDER BY t.key
"""
_TAKE_FAILED = """
    UPDATE transfer_targets t SET is_retried = true FROM transfer_jobs j
    WHERE j.job_id = $1 AND t.job = j.id AND t.key = ANY($2::bigint[]) AND NOT t.is_retried RETURNING t.key
"""


async def _job(connection: Connection, order: JobOrder) -> int:
    """The job's row, made when the first of its shards comes."""
    row = await connection.fetchval(
        """
        INSERT INTO transfer_jobs (job_id, closes_at, deadline_at, expires_at, retry_of) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (job_id) DO UPDATE SET job_id = excluded.job_id RETURNING id
        """,
        order.job_id,
        order.closes_at,
        order.deadline_at,
        order.deadline_at + UNFINISHED_FOR,
        order.retry.job_id if order.retry else None,
    )
    return int(row)


async def _insert_shard(connection: Connection, job: int, shard: Shard) -> bool:
    wanted = shard.consignment
    done = await connection.execute(
        """
        INSERT INTO transfer_shards
            (job, number, project_id, signature, target_user, folder, file_name, sendings)
        VALUES ($1, $2, $3, $4, $5, $6, $7, '[]') ON CONFLICT DO NOTHING
        """,
        job,
        shard.number,
        wanted.project_id,
        wanted.signature,
        wanted.user,
        wanted.folder,
        shard.file_name,
    )
    return str(done).endswith(" 1")


async def waiting(database: Database, job_id: str, numbers: Sequence[int]) -> list[str]:
    """The agents that something waits for in these shards, each once."""
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


async def end_absent(database: Database, job_id: str, numbers: Sequence[int], absent: Mapping[str, str]) -> None:
    """End what waits in these shards for agents that are not there, unless it was cancelled.

    Args:
        database: Where they are written down.
        job_id: Whose shards.
        numbers: Which of them.
        absent: By agent, why it takes nothing.
    """
    async with database.connection() as connection:
        await connection.execute(_END_ABSENT, job_id, list(numbers), list(absent), list(absent.values()))


_END_ABSENT = f"""
    UPDATE transfer_targets t
    SET state = '{State.FAILED}', reason = '{Reason.AGENT_OFFLINE}', ended_at = now(),
        message = 'Nothing was sent: ' || a.why || '. Install or start GSE''s agent on that host, then retry.'
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id,
        unnest($3::text[], $4::text[]) AS a (agent_id, why)
    WHERE j.job_id = $1 AND s.number = ANY($2::int[]) AND t.job = j.id AND t.shard = s.number
        AND t.state = '{State.PENDING}' AND t.agent_id = a.agent_id
        AND NOT EXISTS (
            SELECT FROM transfer_cancels c
            WHERE c.job_id = j.job_id AND c.project_id = s.project_id AND c.key IN (t.key, {ALL_TARGETS})
        )
"""  # noqa: S608 - constants of ours


async def settle(database: Database, job_id: str, numbers: Sequence[int], end: End) -> None:
    """End what has not ended in these shards, whoever thinks that they ship them; the cancelled end as cancelled."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(
            """
            UPDATE transfer_shards SET holder = NULL FROM transfer_jobs
            WHERE transfer_jobs.id = job AND job_id = $1 AND number = ANY($2::int[])
            """,
            job_id,
            list(numbers),
        )
        await connection.execute(
            f"""
            UPDATE transfer_targets t
            SET state = '{State.FAILED}', reason = '{Reason.CANCELLED}', ended_at = now(),
                message = CASE WHEN t.sending = 0 THEN $3 ELSE $4 END
            FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
                JOIN transfer_cancels c USING (job_id, project_id)
            WHERE j.job_id = $1 AND s.number = ANY($2::int[]) AND t.job = j.id AND t.shard = s.number
                AND c.key IN (t.key, {ALL_TARGETS}) AND t.state NOT IN {FINAL_STATES}
            """,  # noqa: S608 - constants of ours
            job_id,
            list(numbers),
            CANCELLED,
            CANCELLED_UNHEARD,
        )
        await connection.execute(
            f"""
            UPDATE transfer_targets t
            SET state = $3, reason = $4, code = coalesce($5, t.failed_code), ended_at = now(),
                message = left($6 || CASE WHEN t.failed_message = '' THEN '' ELSE $7 || t.failed_message END, $8)
            FROM transfer_jobs j
            WHERE j.job_id = $1 AND t.job = j.id AND t.shard = ANY($2::int[]) AND t.state NOT IN {FINAL_STATES}
            """,  # noqa: S608 - constants of ours
            job_id,
            list(numbers),
            end.state,
            end.reason,
            end.code,
            end.message,
            " The last try had failed: ",
            MESSAGE_MAX_CHARACTERS,
        )


async def cancel(database: Database, job_id: str, project_ids: Sequence[str]) -> None:
    """Say that all targets of these projects are no longer wanted."""
    async with database.connection() as connection:
        await connection.execute(
            """
            INSERT INTO transfer_cancels (job_id, project_id, key) SELECT $1, project_id, $3
            FROM unnest($2::text[]) AS each (project_id) ON CONFLICT DO NOTHING
            """,
            job_id,
            list(project_ids),
            ALL_TARGETS,
        )


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


async def purge(database: Database, batch: int) -> int:
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


async def forget(database: Database, known_for: timedelta) -> None:
    """Remove jobs whose targets have been gone for so long: nobody is told any more that they were there."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_jobs WHERE purged_at < now() - $1::interval", known_for)


async def purge_cancels(database: Database, older_than: timedelta) -> None:
    """Remove what was cancelled in jobs that nobody ever joined."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_cancels WHERE cancelled_at < now() - $1::interval", older_than)
