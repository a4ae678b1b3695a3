"""Unfinished messages: counted, loaded by a cycle, archived when done; deleted after retention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import asyncpg
from sqlmodel import SQLModel

from domain.addresses import ordering
from domain.addresses.activity_models import CyclePlanResult
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import (
    ChosenAndSupersededWrites,
    CreateUpdateOrDeleteToCoalesce,
    CycleStep,
    SwapMessageUprns,
    WaitKind,
    WaitReason,
    choose_last_write_of_each_uprn,
)
from infra.address_settings import AddressSettings
from infra.database import Database
from stores.tables.addresses import AddressMessage, ArchivedMessage, build_unfinished_condition

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Row: TypeAlias = "asyncpg.Record"

TOPIC_ORDER: Final = (Topic.SWAP, Topic.CREATE_UPDATE, Topic.DELETE)
"""The order in which a cycle is filled."""

TOUCHED: Final = (
    "(coalesce('Y' IN (ed_ack, im_ack, wfm_ack, od_ack), false) "
    f"OR coalesce(wait_reason ?| ARRAY{list(ordering.TOUCHED_FIELDS)}, false))"
)
"""SQL: whether a module has applied a message, or may have."""
OWNED: Final = f"(proc_flag = 'P' OR (proc_flag = 'N' AND topic = '{Topic.SWAP}' AND next_attempt_at IS NULL))"
"""SQL: whether a cycle is processing a message; a failed swap stays N while it is retried."""

WAITS_FOR_PAUSE: Final = (
    f"coalesce(wait_reason ->> 'kind' = '{WaitKind.PAUSED}' "
    f"OR (wait_reason ->> 'kind' = '{WaitKind.BEHIND}' AND wait_reason ? 'paused'), false)"
)
"""SQL: whether nothing but the pause of a module keeps a message, or the one that it is behind."""

KEEP_UNSURE: Final = "CASE WHEN {0} ? 'unsure' THEN jsonb_build_object('unsure', {0} -> 'unsure') END"
"""SQL: the part of a message's `wait_reason` that remains once it is done: the modules that are unsure."""

_OWNER: Final = f"SELECT min(cycle_id) FROM im_infi_addr_sync_log WHERE {OWNED}"  # noqa: S608 - constants only
_RESUME: Final = f"""
    SELECT id, topic, uprn_1, uprn_2, wait_reason IS NULL AS fresh FROM im_infi_addr_sync_log
    WHERE cycle_id = $1 AND {OWNED} ORDER BY id
    """  # noqa: S608 - constants only
# The topic is part of the text, so that PostgreSQL uses the topic's own index.
_READ: Final = {
    topic: f"""
    SELECT id, uprn_1, uprn_2, proc_flag, {TOUCHED} AS touched FROM im_infi_addr_sync_log
    WHERE {build_unfinished_condition(topic)}
      AND (proc_flag IS NULL OR (proc_flag = 'N' AND retry_times < $1 AND next_attempt_at <= now()))
    ORDER BY id LIMIT $2 FOR NO KEY UPDATE
    """  # noqa: S608 - constants only
    for topic in TOPIC_ORDER
}
# Here and not when a module is resumed: a cycle that began before may put a message off after that.
_WAKE_RESUMED: Final = """
    UPDATE im_infi_addr_sync_log SET next_attempt_at = now()
    WHERE proc_flag = 'N' AND next_attempt_at > now() AND wait_reason ? 'paused'
      AND NOT wait_reason -> 'paused' <@ to_jsonb($1::text[])
    """
_TAKE: Final = """
    UPDATE im_infi_addr_sync_log SET proc_flag = 'P', proc_update_date = now(), cycle_id = $2
    WHERE id = ANY($1::bigint[])
    """
_TAKE_FAILED: Final = """
    UPDATE im_infi_addr_sync_log SET cycle_id = $2, next_attempt_at = NULL WHERE id = ANY($1::bigint[])
    """
_MARK: Final = """
    UPDATE im_infi_addr_sync_log SET wait_reason = coalesce(wait_reason, '{}') || $2::text::jsonb
    WHERE id = ANY($1::bigint[])
    """
_SUPERSEDE: Final = f"""
    UPDATE im_infi_addr_sync_log AS log
    SET proc_flag = 'Y', proc_update_date = now(), cycle_id = $3, superseded_by = winner,
        wait_reason = {KEEP_UNSURE.format("log.wait_reason")}, next_attempt_at = NULL
    FROM unnest($1::bigint[], $2::bigint[]) AS given (loser, winner) WHERE log.id = given.loser
    """  # noqa: S608 - constants only
_WAITING: Final = f"""
    SELECT id, uprn_1, uprn_2 FROM im_infi_addr_sync_log WHERE topic = $1 AND cycle_id = $2 AND {OWNED} ORDER BY id
    """  # noqa: S608 - constants only


async def resume_or_begin_cycle(database: Database, settings: AddressSettings, cycle_id: str) -> CyclePlanResult:
    """Return the rest of the cycle that has not ended, if there is one; else take the messages of a new cycle.

    An interrupted cycle is completed before anything else is loaded, so that it ends as if it had not been interrupted.
    """
    async with database.connection() as connection, connection.transaction():
        owner = await connection.fetchval(_OWNER)
        if owner is not None:
            return _build_unfinished_rest_of_cycle(owner, await connection.fetch(_RESUME, owner), settings)
        await connection.execute(_WAKE_RESUMED, settings.modules.paused)
        swaps, creates, deletes = await _select_due_messages_of_each_topic(connection, settings)
        coalesced = choose_last_write_of_each_uprn(
            [CreateUpdateOrDeleteToCoalesce(row["id"], row["uprn_1"], row["touched"]) for row in (*creates, *deletes)]
        )
        fresh = [row for row in swaps if row["proc_flag"] is None]
        failed = [row["id"] for row in swaps if row["proc_flag"] == "N"]
        await _assign_messages_to_cycle(connection, cycle_id, [row["id"] for row in fresh], failed, coalesced)
    return CyclePlanResult(
        cycle_id=cycle_id,
        swaps=_build_swap_steps(fresh, settings),
        writes=ordering.split_into_parallel_steps(
            _list_ids_not_superseded(creates, coalesced), settings.group_messages_max, settings.step_concurrency
        ),
        deletes=ordering.split_into_parallel_steps(
            _list_ids_not_superseded(deletes, coalesced), settings.group_messages_max, settings.step_concurrency
        ),
        waiting=len(failed),
        loaded=len(swaps) + len(creates) + len(deletes),
        superseded=len(coalesced.superseded),
        step_concurrency=settings.step_concurrency,
    )


def _build_unfinished_rest_of_cycle(cycle_id: str, rows: Sequence[Row], settings: AddressSettings) -> CyclePlanResult:
    """Build the rest of a cycle in its order: swaps that have failed wait."""
    left = {topic: [row for row in rows if row["topic"] == topic] for topic in TOPIC_ORDER}
    return CyclePlanResult(
        cycle_id=cycle_id,
        swaps=_build_swap_steps([row for row in left[Topic.SWAP] if row["fresh"]], settings),
        writes=ordering.split_into_parallel_steps(
            [row["id"] for row in left[Topic.CREATE_UPDATE]], settings.group_messages_max, settings.step_concurrency
        ),
        deletes=ordering.split_into_parallel_steps(
            [row["id"] for row in left[Topic.DELETE]], settings.group_messages_max, settings.step_concurrency
        ),
        waiting=sum(not row["fresh"] for row in left[Topic.SWAP]),
        loaded=len(rows),
        step_concurrency=settings.step_concurrency,
        resumed=True,
    )


async def list_unfinished_swaps(database: Database, settings: AddressSettings, cycle_id: str) -> list[CycleStep]:
    """Return the unfinished swaps of a cycle, oldest first."""
    async with database.connection() as connection:
        return _build_swap_steps(await connection.fetch(_WAITING, Topic.SWAP, cycle_id), settings)


async def _select_due_messages_of_each_topic(connection: Connection, settings: AddressSettings) -> list[list[Row]]:
    """Select the messages of each topic, up to the capacity of a cycle."""
    reserved = max(1, int(settings.threshold * settings.minimum_share)) if settings.minimum_share else 0
    found: list[list[Row]] = []
    for topic in TOPIC_ORDER:
        most = settings.threshold if reserved else settings.threshold - sum(map(len, found))
        found.append(await connection.fetch(_READ[topic], settings.failed_cycles_max, most) if most else [])
    if reserved and settings.threshold < len(TOPIC_ORDER):
        return _take_oldest_message_of_each_topic(found, settings.threshold)
    capacities = ordering.divide_cycle_capacity_among_topics(
        [len(rows) for rows in found], settings.threshold, reserved
    )
    return [rows[:most] for rows, most in zip(found, capacities, strict=True)]


def _take_oldest_message_of_each_topic(found: Sequence[Sequence[Row]], limit: int) -> list[list[Row]]:
    """Return at most one message of each topic: a cycle too small for all topics takes the oldest messages."""
    oldest = sorted(row["id"] for rows in found for row in rows[:1])[:limit]
    return [[row for row in rows[:1] if row["id"] in oldest] for rows in found]


async def _assign_messages_to_cycle(
    connection: Connection,
    cycle_id: str,
    fresh: Sequence[int],
    failed: Sequence[int],
    coalesced: ChosenAndSupersededWrites,
) -> None:
    """Mark the messages as taken by the cycle, and superseded ones as done."""
    await connection.execute(_TAKE, [*fresh, *coalesced.winners], cycle_id)
    if failed:
        await connection.execute(_TAKE_FAILED, failed, cycle_id)
    if coalesced.heirs:
        await connection.execute(_MARK, list(coalesced.heirs), WaitReason(inherits=True).to_json())
    if coalesced.superseded:
        losers, winners = zip(*coalesced.superseded.items(), strict=True)
        await connection.execute(_SUPERSEDE, losers, winners, cycle_id)


def _build_swap_steps(swaps: Sequence[Row], settings: AddressSettings) -> list[CycleStep]:
    pairs = [SwapMessageUprns(row["id"], row["uprn_1"], row["uprn_2"]) for row in swaps]
    return ordering.pack_or_split_groups_into_sequential_steps(
        ordering.group_swaps_without_shared_uprns(pairs), settings.group_messages_max
    )


def _list_ids_not_superseded(rows: Sequence[Row], coalesced: ChosenAndSupersededWrites) -> list[int]:
    return [row["id"] for row in rows if row["id"] in coalesced.winners]


ARCHIVE_BATCH: Final = 5_000


def _list_column_names_but_archived_at(table: type[SQLModel]) -> list[str]:
    return [column.name for column in table.__table__.columns if column.name != "archived_at"]  # type: ignore[attr-defined]


ARCHIVED_COLUMNS: Final = tuple(_list_column_names_but_archived_at(AddressMessage))
_ARCHIVED: Final = ", ".join(ARCHIVED_COLUMNS)
_ARCHIVE: Final = f"""
    WITH moved AS (
        DELETE FROM {AddressMessage.__tablename__} WHERE id IN (
            SELECT id FROM {AddressMessage.__tablename__}
            WHERE proc_flag = 'Y' AND NOT coalesce(wait_reason ? 'unsure', false) LIMIT $1 FOR UPDATE SKIP LOCKED
        ) RETURNING {_ARCHIVED}
    )
    INSERT INTO {ArchivedMessage.__tablename__} ({_ARCHIVED}) SELECT {_ARCHIVED} FROM moved
    """  # noqa: S608 - constants only


_EXPIRY_COLUMNS: Final = {
    "im_infi_addr_sync_log_his": "archived_at",
    "addr_sync_keys": "created_at",
    "addr_sync_quarantine": "created_at",
}
EXPIRING_TABLES: Final = (*_EXPIRY_COLUMNS,)
"""Tables whose rows are deleted after retention."""


async def has_messages_in_log(database: Database) -> bool:
    """Return whether the log holds messages: unfinished ones, or done ones that are not archived yet."""
    async with database.connection() as connection:
        return bool(await connection.fetchval("SELECT EXISTS (SELECT 1 FROM im_infi_addr_sync_log)"))


async def move_done_messages_to_history(database: Database) -> int:
    """Move done messages to the history, except those with an unsure module, and return their number."""
    total = 0
    while True:
        async with database.connection() as connection:
            status = await connection.execute(_ARCHIVE, ARCHIVE_BATCH)
        moved = int(status.rpartition(" ")[2])
        total += moved
        if moved < ARCHIVE_BATCH:
            return total


async def delete_expired_rows(database: Database, table: str, kept: timedelta, limit: int) -> int:
    """Delete at most `limit` rows of a table that are past retention, and return their number."""
    past = f"SELECT ctid FROM {table} WHERE {_EXPIRY_COLUMNS[table]} < now() - $1::interval LIMIT $2"  # noqa: S608 - constants only
    async with database.connection() as connection:
        status = await connection.execute(f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({past}))", kept, limit)  # noqa: S608 - constants only
    return int(status.rpartition(" ")[2])


UNFINISHED_STATES: Final = tuple(state for state in MessageState if state is not MessageState.DONE)

# A module that is not called for a while, because it failed before, has answered nothing to later messages.
_FAILED_IN: Final = (
    "({0}_ack = 'N' OR ({0}_ack IS DISTINCT FROM 'Y' "
    "AND coalesce(wait_reason ->> 'module' = '{0}' OR wait_reason -> 'modules' ? '{0}', false))) "
    "AND NOT coalesce(wait_reason -> 'paused' ? '{0}', false)"
)
_LAST_ANSWER: Final = (
    "max(ARRAY[to_char({0}_ack_date AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS'), left({0}_stack_trace, 200)]) "
    "FILTER (WHERE {0}_ack IS DISTINCT FROM 'Y' AND {0}_stack_trace IS NOT NULL) AS {0}_answer"
)
_BEGUN: Final = f"""
    SELECT topic,
        CASE WHEN {OWNED} THEN '{MessageState.PROCESSING}' WHEN retry_times >= $1 THEN '{MessageState.GIVEN_UP}'
            WHEN {WAITS_FOR_PAUSE} THEN '{MessageState.WAITING}' ELSE '{MessageState.FAILED}' END AS state,
        count(*) AS messages, min(createdat) AS oldest_at,
        {", ".join(f"count(*) FILTER (WHERE {_FAILED_IN.format(module)}) AS {module}" for module in Module)},
        {", ".join(_LAST_ANSWER.format(module) for module in Module)},
        count(*) FILTER (WHERE wait_reason ->> 'kind' = '{WaitKind.BEHIND}') AS behind
    FROM im_infi_addr_sync_log WHERE proc_flag IN ('P', 'N') GROUP BY 1, 2
    """  # noqa: S608 - constants only
# Counted by the topic's partial index of unfinished messages, without reading the log.
_UNFINISHED: Final = " UNION ALL ".join(
    f"""
    SELECT '{topic}' AS topic,
        (SELECT count(*) FROM im_infi_addr_sync_log WHERE {build_unfinished_condition(topic)}) AS messages,
        (SELECT createdat FROM im_infi_addr_sync_log WHERE {build_unfinished_condition(topic)} AND proc_flag IS NULL
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
    answers: Mapping[Module, tuple[str, str]] = field(default_factory=dict)
    """When each module last failed one of them, as a text that sorts, and the first words of its answer."""
    behind: int = 0
    """The number of them that wait for another message."""


@dataclass(frozen=True, slots=True)
class UnfinishedMessageCounts:
    """All counts at one moment."""

    at: datetime
    counts: list[MessageCount]
    """One for every topic and every state but done."""
    quarantined: int
    listed: int
    removable: int

    def compute_age_of_oldest(self, count: MessageCount) -> float:
        """Return the age of the oldest message; 0 without one."""
        return max(0.0, (self.at - count.oldest_at).total_seconds()) if count.oldest_at else 0.0


async def count_unfinished_messages(database: Database, retries: int) -> UnfinishedMessageCounts:
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        begun = [_build_count_of_loaded_messages(row) for row in await connection.fetch(_BEGUN, retries)]
        rows = await connection.fetch(_UNFINISHED)
        beside = await connection.fetchrow(_OTHER_COUNTS)
    if beside is None:
        raise LookupError("a statement of counts has answered no row")
    found = {(each.topic, each.state): each for each in (*begun, *_compute_waiting_counts(rows, begun))}
    counts = [found.get((topic, state), MessageCount(topic, state)) for topic in Topic for state in UNFINISHED_STATES]
    return UnfinishedMessageCounts(beside["at"], counts, beside["quarantined"], beside["listed"], beside["removable"])


def _build_count_of_loaded_messages(row: Row) -> MessageCount:
    return MessageCount(
        Topic(row["topic"]),
        MessageState(row["state"]),
        row["messages"],
        row["oldest_at"],
        failed_in={module: row[module.value] for module in Module},
        answers={module: (at, text) for module in Module for at, text in [row[f"{module}_answer"] or (None, "")] if at},
        behind=row["behind"],
    )


def _compute_waiting_counts(rows: Iterable[Row], begun: Iterable[MessageCount]) -> Iterable[MessageCount]:
    """Build the counts of messages that no cycle has loaded yet, or that wait for the pause of a module."""
    begun = list(begun)
    for row in rows:
        others = [each for each in begun if each.topic == row["topic"] and each.state is not MessageState.WAITING]
        paused = [each for each in begun if each.topic == row["topic"] and each.state is MessageState.WAITING]
        times = [each for each in (row["oldest_at"], *(each.oldest_at for each in paused)) if each]
        messages = row["messages"] - sum(each.messages for each in others)
        yield MessageCount(Topic(row["topic"]), MessageState.WAITING, messages, min(times, default=None))
