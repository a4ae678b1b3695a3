"""Counting: how many messages are in which state, and since when the oldest of them waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.addresses.states import State
from infra.database import Database
from stores.addresses.loading import OWNED
from stores.addresses.searching import LOG
from stores.tables.addresses import unfinished

Row: TypeAlias = "asyncpg.Record"

OPEN: Final = tuple(state for state in State if state is not State.DONE)

_BEGUN: Final = f"""
    SELECT topic,
        CASE WHEN {OWNED} THEN '{State.PROCESSING}' WHEN retry_times < $1 THEN '{State.FAILED}'
            ELSE '{State.GIVEN_UP}' END AS state,
        count(*) AS messages, min(createdat) AS oldest_at,
        {", ".join(f"count(*) FILTER (WHERE {module}_ack = 'N') AS {module}" for module in Module)}
    FROM {LOG} WHERE proc_flag IN ('P', 'N') GROUP BY 1, 2
    """  # noqa: S608 - names of ours
# Each topic's own index has what is not done of it: it is counted there, without looking into the log.
_UNFINISHED: Final = " UNION ALL ".join(
    f"""
    SELECT '{topic}' AS topic, (SELECT count(*) FROM {LOG} WHERE {unfinished(topic)}) AS messages,
        (SELECT createdat FROM {LOG} WHERE {unfinished(topic)} AND proc_flag IS NULL ORDER BY id LIMIT 1) AS oldest_at
    """  # noqa: S608 - names of ours
    for topic in Topic
)
_BESIDE: Final = """
    SELECT now() AS at, (SELECT count(*) FROM addr_sync_quarantine WHERE mended_as IS NULL) AS quarantined,
        count(*) AS listed, count(removable_at) AS removable
    FROM addr_logical_deletes WHERE purged_at IS NULL
    """


@dataclass(frozen=True, slots=True)
class Count:
    """The messages of a topic in one state."""

    topic: Topic
    state: State
    messages: int = 0
    oldest_at: datetime | None = None
    failed_in: Mapping[Module, int] = field(default_factory=lambda: dict.fromkeys(Module, 0))
    """How many of them failed in each module."""


@dataclass(frozen=True, slots=True)
class Counts:
    """All of one moment."""

    at: datetime
    counts: list[Count]
    """Of every topic and every state but done."""
    quarantined: int
    listed: int
    removable: int

    def oldest_seconds(self, count: Count) -> float:
        """For how long the oldest of them has been there."""
        return max(0.0, (self.at - count.oldest_at).total_seconds()) if count.oldest_at else 0.0


async def count(database: Database, retries: int) -> Counts:
    """Count what is not done."""
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        begun = [_begun(row) for row in await connection.fetch(_BEGUN, retries)]
        rows = await connection.fetch(_UNFINISHED)
        beside = await connection.fetchrow(_BESIDE)
    if beside is None:
        raise LookupError("a statement of counts has answered no row")
    found = {(each.topic, each.state): each for each in (*begun, *_waiting(rows, begun))}
    counts = [found.get((topic, state), Count(topic, state)) for topic in Topic for state in OPEN]
    return Counts(beside["at"], counts, beside["quarantined"], beside["listed"], beside["removable"])


def _begun(row: Row) -> Count:
    failed_in = {module: row[module.value] for module in Module}
    return Count(Topic(row["topic"]), State(row["state"]), row["messages"], row["oldest_at"], failed_in)


def _waiting(rows: Iterable[Row], begun: Iterable[Count]) -> Iterable[Count]:
    """What is not done and not begun either."""
    begun = list(begun)
    for row in rows:
        others = sum(each.messages for each in begun if each.topic == row["topic"])
        yield Count(Topic(row["topic"]), State.WAITING, row["messages"] - others, row["oldest_at"])
