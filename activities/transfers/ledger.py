"""What is written down of jobs: who is in which shard, which GSE tasks carry them, and where each target stands.

A target's final state is never overwritten, by nobody.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg

from domain.transfers.joining import JobOrder, Shard
from domain.transfers.request import Consignment
from domain.transfers.shipment import Item, Sending
from domain.transfers.states import FINAL, End, Reason, State
from infra.database import Database
from infra.tables.transfers import ALL_TARGETS

UNFINISHED_FOR = timedelta(hours=1)
"""A job whose workflow was ended by hand is forgotten so long after its deadline."""

MESSAGE_MAX_CHARACTERS = 500

_FINAL = "('" + "', '".join(sorted(FINAL)) + "')"
_COLUMNS = (
    *("job", "key", "shard", "agent_id", "container_id"),
    *("state", "sending", "failures", "failed_in", "message", "progress", "speed"),
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def freeze(database: Database, order: JobOrder, shards: Sequence[Shard]) -> None:
    """Write shards and their targets; those that are there already stay as they are."""
    async with database.connection() as connection, connection.transaction():
        job = await _job(connection, order)
        for shard in shards:
            if await _insert_shard(connection, job, shard):
                rows = [
                    (job, key, shard.number, agent_id, container_id, State.PENDING, 0, 0, 0, "", 0, 0)
                    for key, agent_id, container_id in shard.targets
                ]
                await connection.copy_records_to_table("transfer_targets", records=rows, columns=_COLUMNS)


async def _job(connection: Connection, order: JobOrder) -> int:
    """The job's row, made when the first of its shards comes."""
    row = await connection.fetchval(
        """
        INSERT INTO transfer_jobs (job_id, closes_at, deadline_at, expires_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (job_id) DO UPDATE SET job_id = excluded.job_id RETURNING id
        """,
        order.job_id,
        order.closes_at,
        order.deadline_at,
        order.deadline_at + UNFINISHED_FOR,
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


class Superseded(Exception):
    """Another worker ships this shard now; whoever finds that out stops without a trace."""


class ShardLedger:
    """The record of one shard, in the hands of who ships it.

    Args:
        holder: A name of the shipper's own.
    """

    def __init__(self, database: Database, job_id: str, number: int, holder: str) -> None:
        self._database = database
        self._job_id = job_id
        self._number = number
        self._holder = holder
        self._job = 0

    async def take_over(self) -> tuple[Consignment, list[Item], dict[int, Sending]]:
        """Become the one who ships it, and learn how far it is."""
        async with self._database.connection() as connection, connection.transaction():
            shard = await connection.fetchrow(
                """
                UPDATE transfer_shards SET holder = $3 FROM transfer_jobs
                WHERE transfer_jobs.id = job AND job_id = $1 AND number = $2
                RETURNING job, project_id, signature, target_user, folder, sendings::text AS sendings
                """,
                self._job_id,
                self._number,
                self._holder,
            )
            if shard is None:
                raise LookupError(f"shard {self._number} of {self._job_id} is not written down")
            self._job = shard["job"]
            rows = await connection.fetch(
                "SELECT * FROM transfer_targets WHERE job = $1 AND shard = $2", self._job, self._number
            )
        sendings = [Sending.model_validate(each) for each in json.loads(shard["sendings"])]
        consignment = Consignment(
            project_id=shard["project_id"],
            signature=shard["signature"],
            user=shard["target_user"],
            folder=shard["folder"],
        )
        return consignment, [_item(row) for row in rows], {sending.number: sending for sending in sendings}

    async def cancelled(self) -> set[int]:
        """The keys of targets that are no longer wanted and have not ended."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                f"""
                SELECT t.key FROM transfer_cancels c
                JOIN transfer_shards s ON s.job = $1 AND s.number = $2 AND s.project_id = c.project_id
                JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number AND c.key IN (t.key, {ALL_TARGETS})
                WHERE c.job_id = $3 AND t.state NOT IN {_FINAL}
                """,  # noqa: S608 - constants of ours
                self._job,
                self._number,
                self._job_id,
            )
        return {row["key"] for row in rows}

    async def write(self, items: Sequence[Item], sendings: Sequence[Sending] | None = None) -> None:
        """Write targets that have changed, and the GSE tasks if one was begun or given up.

        Raises:
            Superseded: Another shipper has taken over; nothing was written.
        """
        async with self._database.connection() as connection, connection.transaction():
            mine = "job = $1 AND number = $2 AND holder = $3"
            whose = (self._job, self._number, self._holder)
            if sendings is None:
                held = await connection.execute(f"SELECT FROM transfer_shards WHERE {mine} FOR SHARE", *whose)
            else:
                told = json.dumps([each.model_dump() for each in sendings])
                held = await connection.execute(
                    f"UPDATE transfer_shards SET sendings = $4::text::jsonb WHERE {mine}", *whose, told
                )  # noqa: S608
            if not str(held).endswith(" 1"):
                raise Superseded(f"another worker ships shard {self._number} of {self._job_id}")
            if items:
                await connection.execute(_WRITE, self._job, *_arrays(items))


_WRITE = f"""
    UPDATE transfer_targets t
    SET state = n.state, sending = n.sending, failures = n.failures, failed_in = n.failed_in, code = n.code,
        reason = n.reason, message = n.message, progress = n.progress, speed = n.speed
    FROM unnest($2::bigint[], $3::text[], $4::smallint[], $5::smallint[], $6::smallint[], $7::int[], $8::text[],
        $9::text[], $10::smallint[], $11::bigint[])
        AS n (key, state, sending, failures, failed_in, code, reason, message, progress, speed)
    WHERE t.job = $1 AND t.key = n.key AND t.state NOT IN {_FINAL}
"""  # noqa: S608 - constants of ours


def _arrays(items: Sequence[Item]) -> list[list[Any]]:
    return [
        [item.key for item in items],
        [item.state for item in items],
        [item.sending for item in items],
        [item.failures for item in items],
        [item.failed_in for item in items],
        [item.code for item in items],
        [item.reason for item in items],
        [item.message[:MESSAGE_MAX_CHARACTERS] for item in items],
        [item.progress for item in items],
        [item.speed for item in items],
    ]


def _item(row: asyncpg.Record) -> Item:
    return Item(
        key=row["key"],
        agent_id=row["agent_id"],
        container_id=row["container_id"],
        state=State(row["state"]),
        sending=row["sending"],
        failures=row["failures"],
        failed_in=row["failed_in"],
        code=row["code"],
        reason=Reason(row["reason"]) if row["reason"] else None,
        message=row["message"],
        progress=row["progress"],
        speed=row["speed"],
    )


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
            UPDATE transfer_targets t SET state = $3, reason = $4, code = $5, message = $6
            FROM transfer_jobs j
            WHERE j.job_id = $1 AND t.job = j.id AND t.shard = ANY($2::int[]) AND t.state NOT IN {_FINAL}
            """,  # noqa: S608 - constants of ours
            job_id,
            list(numbers),
            end.state,
            end.reason,
            end.code,
            end.message[:MESSAGE_MAX_CHARACTERS],
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
    """Remove some jobs whose time is over, with all that is written of them; says how many."""
    async with database.connection() as connection, connection.transaction():
        rows = await connection.fetch(
            "SELECT id, job_id FROM transfer_jobs WHERE expires_at <= now() ORDER BY expires_at LIMIT $1", batch
        )
        jobs, job_ids = [row["id"] for row in rows], [row["job_id"] for row in rows]
        await connection.execute("DELETE FROM transfer_targets WHERE job = ANY($1::bigint[])", jobs)
        await connection.execute("DELETE FROM transfer_cancels WHERE job_id = ANY($1::text[])", job_ids)
        await connection.execute("DELETE FROM transfer_jobs WHERE id = ANY($1::bigint[])", jobs)
    return len(jobs)


async def purge_cancels(database: Database, older_than: timedelta) -> None:
    """Remove what was cancelled in jobs that nobody ever joined."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM transfer_cancels WHERE cancelled_at < now() - $1::interval", older_than)
