"""The record of one shard, in the hands of who ships it: whoever takes it over, the one before can write no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from domain.transfers.request import Consignment
from domain.transfers.shipment import Item, Sending
from domain.transfers.states import Reason, State
from infra.database import Database
from stores.tables.transfers import ALL_TARGETS
from stores.transfers.ledger import FINAL_STATES, MESSAGE_MAX_CHARACTERS


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
