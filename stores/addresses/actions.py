"""Actions of operators on messages: retry and skip. Each statement also writes who did it and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.addresses.ordering import WaitKind
from infra.database import Database
from stores.addresses.cycle import TOUCHED, WAITS_FOR_PAUSE
from stores.addresses.search import (
    IDLE_FAILED,
    LOG,
    MessageSearchConditions,
    WhereClauseWithValues,
    add_filter_conditions,
    build_materialized_subquery,
)
from stores.pauses import PauseRecord

RETRIED_MAX: Final = 10_000

_OPEN: Final = f"(proc_flag IS NULL OR {IDLE_FAILED})"
_RETRY_NOW: Final = "retry_times = 0, next_attempt_at = now()"
_DONE: Final = "proc_flag = 'Y', proc_update_date = now(), next_attempt_at = NULL"
_RETRY: Final = f"""
    WITH retried AS (UPDATE {LOG} SET {_RETRY_NOW} WHERE id = $1 AND {IDLE_FAILED} RETURNING id)
    INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'retry', id, $3 FROM retried RETURNING log_id
    """  # noqa: S608 - constants only
# The limit ends the recursion: rows are linked only as far as they are asked for. Of too many none is retried: what is
# left out, be it the oldest or the farthest, could be what another must not overtake, or the link to others.
_RETRY_CHAIN: Final = f"""
    WITH RECURSIVE chain AS (
        SELECT id, uprn_1, uprn_2 FROM {LOG} WHERE id = $1 AND {IDLE_FAILED}
        UNION
        SELECT other.id, other.uprn_1, other.uprn_2 FROM chain JOIN {LOG} AS other
            ON other.uprn_1 IN (chain.uprn_1, chain.uprn_2) OR other.uprn_2 IN (chain.uprn_1, chain.uprn_2)
        WHERE other.proc_flag = 'N'
    ),
    linked AS MATERIALIZED (SELECT id FROM chain LIMIT $4 + 1),
    retried AS (
        UPDATE {LOG} SET {_RETRY_NOW}
        WHERE id IN (SELECT id FROM linked) AND (SELECT count(*) FROM linked) <= $4 AND {IDLE_FAILED} RETURNING id
    ),
    noted AS (INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'retry', id, $3 FROM retried)
    SELECT (SELECT count(*) FROM retried) AS retried, (SELECT count(*) FROM linked) AS linked
    """  # noqa: S608 - constants only
# Messages that wait for the skipped one become due now.
_SKIP: Final = f"""
    WITH skipped AS (
        UPDATE {LOG} SET {_DONE}, reason = $4
        WHERE id = $1 AND {_OPEN} AND ($5 OR NOT {TOUCHED}) RETURNING id
    ),
    woken AS (
        UPDATE {LOG} SET next_attempt_at = now() FROM skipped
        WHERE proc_flag = 'N' AND next_attempt_at > now() AND wait_reason -> 'behind' = to_jsonb(skipped.id)
    )
    INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'skip', id, $3 FROM skipped RETURNING log_id
    """  # noqa: S608 - constants only
# SKIP LOCKED: a locked message is about to be taken by a cycle or to end, and waiting for it would block others.
_CHANGE_MANY: Final = """
    WITH {gathered},
    matching AS MATERIALIZED (SELECT id, {free} AS is_free, {fits} AS fits FROM gathered WHERE {where}),
    chosen AS MATERIALIZED (
        SELECT id FROM {log}
        WHERE id = ANY(ARRAY(SELECT id FROM matching WHERE is_free AND fits ORDER BY id LIMIT {limit}))
            AND {free} AND {fits}
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    changed AS (UPDATE {log} AS log SET {change} FROM chosen WHERE log.id = chosen.id RETURNING log.id),{also}
    noted AS (INSERT INTO addr_audit (who, action, log_id, reason) SELECT {who}, {action}, id, {reason} FROM changed)
    SELECT (SELECT count(*) FROM changed) AS changed, (SELECT count(*) FROM matching) AS matching,
        (SELECT count(*) FROM matching WHERE is_free) AS free,
        (SELECT count(*) FROM matching WHERE is_free AND fits) AS fitting
    """
# As in `_SKIP`, except the skipped messages themselves: a statement may change a row only once.
_WOKEN: Final = f"""
    followers AS MATERIALIZED (
        SELECT id FROM {LOG}
        WHERE proc_flag = 'N' AND next_attempt_at > now()
            AND wait_reason -> 'behind' IN (SELECT to_jsonb(id) FROM chosen) AND id NOT IN (SELECT id FROM chosen)
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    woken AS (UPDATE {LOG} AS log SET next_attempt_at = now() FROM followers WHERE log.id = followers.id),"""  # noqa: S608 - constants only
_COUNT: Final = """
    WITH {gathered}
    SELECT count(*) FILTER (WHERE {free}) AS free, count(*) FILTER (WHERE {free} AND {touched}) AS touched,
        count(*) AS matching
    FROM gathered WHERE {where}
    """

_LAST_PAUSE: Final = "SELECT done_at, who, reason FROM addr_audit WHERE action = 'pause' ORDER BY id DESC LIMIT 1"
_RECORD: Final = "INSERT INTO addr_audit (who, action, reason) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class ActorWithReason:
    """The operator who acts, and the reason."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class BulkRetryOrSkipCounts:
    """The numbers of matching messages by what happened to them."""

    changed: int
    busy: int
    """Left alone, because a cycle is processing them."""
    touched: int
    """Not skipped, because a module has applied them, or may have."""
    remaining: int
    """Left for the next call, beyond the limit."""


@dataclass(frozen=True, slots=True)
class FailedMessageCounts:
    """The numbers of failed messages that match."""

    free: int
    """Those that can be retried or skipped."""
    busy: int
    """Those that a cycle is processing."""
    touched: int
    """Of the free ones: those that a module has applied, or may have."""


async def retry_message(database: Database, message_id: int, actor: ActorWithReason) -> bool:
    """Make a failed message due now, unless a cycle is processing it, and return whether it was."""
    async with database.connection() as connection:
        return await connection.fetchval(_RETRY, message_id, actor.who, actor.reason) is not None


async def retry_linked_messages(
    database: Database, message_id: int, actor: ActorWithReason, limit: int = RETRIED_MAX
) -> BulkRetryOrSkipCounts:
    """Make a failed message due now, with all failed messages that its addresses link to it.

    Of more than the limit, none is; `remaining` is their number as far as it was counted.
    """
    async with database.connection() as connection:
        row = await connection.fetchrow(_RETRY_CHAIN, message_id, actor.who, actor.reason, limit)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    left = row["linked"] if row["linked"] > limit else 0
    busy = row["linked"] - row["retried"] - left
    return BulkRetryOrSkipCounts(changed=row["retried"], busy=busy, touched=0, remaining=left)


async def skip_message(database: Database, message_id: int, actor: ActorWithReason, *, though_touched: bool) -> bool:
    """Give a message up for good, and return whether it was; a cycle's or a touched one is left alone."""
    async with database.connection() as connection:
        done = await connection.fetchval(
            _SKIP, message_id, actor.who, actor.reason, _build_skip_reason(actor), though_touched
        )
        return done is not None


async def retry_messages(
    database: Database, filter_: MessageSearchConditions, limit: int, actor: ActorWithReason
) -> BulkRetryOrSkipCounts:
    """Make all failed messages that match due now, except those that a cycle is processing.

    A message that was made due before and has not failed since does not match, so that repeated calls come to an end.
    """
    return await _run_bulk_statement(database, build_bulk_retry_statement(filter_, limit, actor), limit)


async def skip_messages(
    database: Database, filter_: MessageSearchConditions, limit: int, actor: ActorWithReason
) -> BulkRetryOrSkipCounts:
    """Give up all failed messages that match, except those that a cycle is processing or a module may have applied.

    Messages named by their ids need not have failed.
    """
    return await _run_bulk_statement(database, build_bulk_skip_statement(filter_, limit, actor), limit)


async def count_failed_messages(database: Database, filter_: MessageSearchConditions) -> FailedMessageCounts:
    where = WhereClauseWithValues()
    gate = _build_failed_or_named_unfinished_condition(filter_, where)
    add_filter_conditions(filter_, where)
    text = _COUNT.format(
        gathered=build_materialized_subquery(gate), free=IDLE_FAILED, touched=TOUCHED, where=where.where_text
    )
    async with database.connection() as connection:
        row = await connection.fetchrow(text, *where.values)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    return FailedMessageCounts(free=row["free"], busy=row["matching"] - row["free"], touched=row["touched"])


async def find_last_cycle_pause_in_audit(database: Database) -> PauseRecord | None:
    """Return the last pause of the cycle that the audit has."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_LAST_PAUSE)
    return None if row is None else PauseRecord(row["done_at"], row["who"], row["reason"] or "")


async def record_action_of_all_messages(database: Database, action: str, actor: ActorWithReason) -> None:
    """Record an action that concerns all messages."""
    async with database.connection() as connection:
        await connection.execute(_RECORD, actor.who, action, actor.reason)


def build_bulk_retry_statement(
    filter_: MessageSearchConditions, limit: int, actor: ActorWithReason
) -> tuple[str, list[object]]:
    """Return the statement that retries many messages, and its values."""
    where = WhereClauseWithValues(["(retry_times > 0 OR next_attempt_at > now())"])
    return _build_bulk_statement(
        filter_, limit, actor, where, action="'retry'", change=_RETRY_NOW, also="", free=IDLE_FAILED, fits="true"
    )


def build_bulk_skip_statement(
    filter_: MessageSearchConditions, limit: int, actor: ActorWithReason
) -> tuple[str, list[object]]:
    """Return the statement that skips many messages, and its values."""
    where = WhereClauseWithValues()
    change = f"{_DONE}, reason = {where.add_value_and_get_placeholder(_build_skip_reason(actor))}"
    fits = f"NOT {TOUCHED}"
    return _build_bulk_statement(
        filter_, limit, actor, where, action="'skip'", change=change, also=_WOKEN, free=_OPEN, fits=fits
    )


def _build_bulk_statement(
    filter_: MessageSearchConditions, limit: int, actor: ActorWithReason, where: WhereClauseWithValues, **parts: str
) -> tuple[str, list[object]]:
    gate = _build_failed_or_named_unfinished_condition(filter_, where)
    add_filter_conditions(filter_, where)
    text = _CHANGE_MANY.format(
        log=LOG,
        gathered=build_materialized_subquery(gate),
        where=where.where_text,
        limit=where.add_value_and_get_placeholder(limit),
        who=where.add_value_and_get_placeholder(actor.who),
        reason=where.add_value_and_get_placeholder(actor.reason),
        **parts,
    )
    return text, where.values


def _build_failed_or_named_unfinished_condition(filter_: MessageSearchConditions, where: WhereClauseWithValues) -> str:
    """Return the condition for failed messages, or for named messages that are not done.

    Messages that wait for the pause of a module have not failed; they are meant where that kind is asked for.
    """
    if filter_.ids is None:
        return "proc_flag = 'N'" if filter_.kind is WaitKind.PAUSED else f"proc_flag = 'N' AND NOT {WAITS_FOR_PAUSE}"
    return f"id = ANY({where.add_value_and_get_placeholder(filter_.ids)}) AND proc_flag IS DISTINCT FROM 'Y'"


async def _run_bulk_statement(
    database: Database, statement: tuple[str, list[object]], limit: int
) -> BulkRetryOrSkipCounts:
    text, values = statement
    async with database.connection() as connection:
        row = await connection.fetchrow(text, *values)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    left, touched = max(0, row["fitting"] - limit), row["free"] - row["fitting"]
    busy = row["matching"] - row["changed"] - left - touched
    return BulkRetryOrSkipCounts(changed=row["changed"], busy=busy, touched=touched, remaining=left)


def _build_skip_reason(actor: ActorWithReason) -> str:
    return f"Skipped by {actor.who}: {actor.reason}"
