"""Counts of unfinished messages by topic and state, with the age of the oldest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg

from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from infra.database import Database
from stores.addresses.cycle import OWNED
from stores.addresses.search import LOG
from stores.tables.addresses import build_unfinished_condition

Row: TypeAlias = "asyncpg.Record"

UNFINISHED_STATES: Final = tuple(state for state in MessageState if state is not MessageState.DONE)

_BEGUN: Final = f"""
    SELECT topic,
        CASE WHEN {OWNED} THEN '{MessageState.PROCESSING}' WHEN retry_times < $1 THEN '{MessageState.FAILED}'
            ELSE '{MessageState.GIVEN_UP}' END AS state,
        count(*) AS messages, min(createdat) AS oldest_at,
        {", ".join(f"count(*) FILTER (WHERE {module}_ack = 'N') AS {module}" for module in Module)}
    FROM {LOG} WHERE proc_flag IN ('P', 'N') GROUP BY 1, 2
    """  # noqa: S608 - constants only
# Counted by the topic's partial index of unfinished messages, without reading the log.
_UNFINISHED: Final = " UNION ALL ".join(
    f"""
    SELECT '{topic}' AS topic, (SELECT count(*) FROM {LOG} WHERE {build_unfinished_condition(topic)}) AS messages,
        (SELECT createdat FROM {LOG} WHERE {build_unfinished_condition(topic)} AND proc_flag IS NULL
         ORDER BY id LIMIT 1) AS oldest_at
    """  # noqa: S608 - constants only
    for topic in Topic
)
_OTHER_COUNTS: Final = """
    SELECT now() AS at, (SELECT count(*) FROM addr_sync_quarantine WHERE mended_as IS NULL) AS quarantined,
        count(*) AS listed, count(removable_at) AS removable
    FROM addr_logical_deletes WHERE purged_at IS NULL
    """


@dataclass(frozen=True, slots=True)
class MessageCount:
    """The messages of a topic in one state."""

    topic: Topic
    state: MessageState
    messages: int = 0
    oldest_at: datetime | None = None
    failed_in: Mapping[Module, int] = field(default_factory=lambda: dict.fromkeys(Module, 0))
    """The number of them that failed in each module."""


@dataclass(frozen=True, slots=True)
class UnfinishedCounts:
    """All counts at one moment."""

    at: datetime
    counts: list[MessageCount]
    """One for every topic and every state but done."""
    quarantined: int
    listed: int
    removable: int

    def oldest_seconds(self, count: MessageCount) -> float:
        """Return the age of the oldest message; 0 without one."""
        return max(0.0, (self.at - count.oldest_at).total_seconds()) if count.oldest_at else 0.0


async def count_unfinished(database: Database, retries: int) -> UnfinishedCounts:
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        begun = [_build_begun(row) for row in await connection.fetch(_BEGUN, retries)]
        rows = await connection.fetch(_UNFINISHED)
        beside = await connection.fetchrow(_OTHER_COUNTS)
    if beside is None:
        raise LookupError("a statement of counts has answered no row")
    found = {(each.topic, each.state): each for each in (*begun, *_build_waiting(rows, begun))}
    counts = [found.get((topic, state), MessageCount(topic, state)) for topic in Topic for state in UNFINISHED_STATES]
    return UnfinishedCounts(beside["at"], counts, beside["quarantined"], beside["listed"], beside["removable"])


def _build_begun(row: Row) -> MessageCount:
    failed_in = {module: row[module.value] for module in Module}
    return MessageCount(Topic(row["topic"]), MessageState(row["state"]), row["messages"], row["oldest_at"], failed_in)


def _build_waiting(rows: Iterable[Row], begun: Iterable[MessageCount]) -> Iterable[MessageCount]:
    """Build the counts of messages that no cycle has loaded yet."""
    begun = list(begun)
    for row in rows:
        others = sum(each.messages for each in begun if each.topic == row["topic"])
        yield MessageCount(Topic(row["topic"]), MessageState.WAITING, row["messages"] - others, row["oldest_at"])
