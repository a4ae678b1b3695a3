"""The record of one shard, in the hands of who ships it: whoever takes it over, the one before can write no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, TypeAlias

import asyncpg

from domain.transfers.activity_models import ShardPlace
from domain.transfers.joining import JobOrder, JoinGroup, Lot, Retry, Roll, Shard
from domain.transfers.models import Consignment, Reason, State
from domain.transfers.shipment import Item, Sending
from infra.database import Database
from stores.tables.transfers import ALL_TARGETS
from stores.transfers.targets import FINAL_STATES, MESSAGE_MAX_CHARACTERS

UNFINISHED_FOR = timedelta(hours=1)
"""A job whose workflow was ended by hand is forgotten so long after its deadline."""
_COLUMNS = (
    *("job", "key", "shard", "agent_id", "container_id"),
    *("state", "sending", "failures", "failed_in", "message", "progress", "speed", "joined_at"),
)
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


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
                WHERE c.job_id = $3 AND t.state NOT IN {FINAL_STATES}
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
            whose = (self._job, self._number, self._holder)
            if sendings is None:
                held = await connection.execute(_HOLD, *whose)
            else:
                told = json.dumps([each.model_dump() for each in sendings])
                held = await connection.execute(_SEND, *whose, told)
            if not str(held).endswith(" 1"):
                raise Superseded(f"another worker ships shard {self._number} of {self._job_id}")
            if items:
                await connection.execute(_WRITE, self._job, self._number, *_arrays(items))


_HOLD = "SELECT FROM transfer_shards WHERE job = $1 AND number = $2 AND holder = $3 FOR SHARE"
_SEND = """
    UPDATE transfer_shards SET sendings = $4::text::jsonb WHERE job = $1 AND number = $2 AND holder = $3
"""
_WRITE = f"""
    UPDATE transfer_targets t
    SET state = n.state, sending = n.sending, failures = n.failures, failed_in = n.failed_in, code = n.code,
        reason = n.reason, message = n.message, progress = n.progress, speed = n.speed,
        failed_code = n.failed_code, failed_message = n.failed_message,
        ended_at = CASE WHEN n.state IN {FINAL_STATES} THEN now() END
    FROM unnest($3::bigint[], $4::text[], $5::smallint[], $6::smallint[], $7::smallint[], $8::int[], $9::text[],
        $10::text[], $11::smallint[], $12::bigint[], $13::int[], $14::text[])
        AS n (key, state, sending, failures, failed_in, code, reason, message, progress, speed, failed_code,
            failed_message)
    WHERE t.job = $1 AND t.shard = $2 AND t.key = n.key AND t.state NOT IN {FINAL_STATES}
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
        [item.failed_code for item in items],
        [item.failed_message[:MESSAGE_MAX_CHARACTERS] for item in items],
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
        failed_code=row["failed_code"],
        failed_message=row["failed_message"],
        progress=row["progress"],
        speed=row["speed"],
    )


async def save(database: Database, order: JobOrder, shards: Sequence[Shard]) -> None:
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


async def _load_failed(database: Database, retry: Retry) -> list[Lot]:
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


async def save_retry(database: Database, order: JobOrder, retry: Retry) -> list[ShardPlace]:
    """Write the failed targets of an earlier job as shards of this one, once; they belong to no other retry then."""
    roll = Roll(order)
    roll.take(JoinGroup(lots=await _load_failed(database, retry)), order.closes_at)
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
