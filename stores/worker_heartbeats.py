"""Heartbeats of worker processes: one that was killed, was suspended or hangs writes none.

Temporal alone does not tell: it remembers polls for minutes, and holds those of a suspended process open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.database import Database

INTERVAL_SECONDS: Final = 10.0
SILENT_AFTER_SECONDS: Final = 40.0
"""A process that has missed three heartbeats, and a pause as a busy machine makes, does not answer."""

_WRITE: Final = """
    INSERT INTO worker_heartbeats (identity, queues) VALUES ($1, $2)
    ON CONFLICT (identity) DO UPDATE SET queues = excluded.queues, seen_at = now()
"""
_DELETE: Final = "DELETE FROM worker_heartbeats WHERE identity = $1"
_DELETE_OLD: Final = "DELETE FROM worker_heartbeats WHERE seen_at < now() - interval '1 day'"
_LIST: Final = """
    SELECT identity, queues, extract(epoch FROM now() - seen_at)::float8 AS silent_seconds FROM worker_heartbeats
    WHERE seen_at > now() - interval '1 day'
"""


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """The last heartbeat of a worker process that has not ended in order."""

    identity: str
    """The identity of the process at Temporal."""

    queues: Sequence[str]
    silent_seconds: float

    @property
    def is_silent(self) -> bool:
        """Whether it is so old that the process does not answer."""
        return self.silent_seconds > SILENT_AFTER_SECONDS


async def write_heartbeat(database: Database, identity: str, queues: Sequence[str]) -> None:
    """Record that a process serves these queues now."""
    async with database.connection(beside_pool=True) as connection:
        await connection.execute(_WRITE, identity, list(queues))


async def delete_heartbeat_and_day_old_ones(database: Database, identity: str) -> None:
    """Forget a process that ends in order, and those that have been silent for a day."""
    async with database.connection() as connection:
        await connection.execute(_DELETE, identity)
        await connection.execute(_DELETE_OLD)


async def list_heartbeats(database: Database) -> list[WorkerHeartbeat]:
    """Return the heartbeats of the last day."""
    async with database.connection() as connection:
        rows = await connection.fetch(_LIST)
    return [WorkerHeartbeat(row["identity"], row["queues"], row["silent_seconds"]) for row in rows]
