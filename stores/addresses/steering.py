"""Steering: what operators do to messages. Only what no cycle has is touched, in the statement that also notes who."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.database import Database
from stores.addresses.loading import TOUCHED
from stores.addresses.searching import FREE, LOG, Filter, Where, gathered, narrowed

RETRIED_MAX: Final = 10_000

_OPEN: Final = f"(proc_flag IS NULL OR {FREE})"
_AGAIN: Final = "retry_times = 0, next_attempt_at = now()"
_DONE: Final = "proc_flag = 'Y', proc_update_date = now(), next_attempt_at = NULL"
_RETRY: Final = f"""
    WITH retried AS (UPDATE {LOG} SET {_AGAIN} WHERE id = $1 AND {FREE} RETURNING id)
    INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'retry', id, $3 FROM retried RETURNING log_id
    """  # noqa: S608 - names of ours
_RETRY_CHAIN: Final = f"""
    WITH RECURSIVE chain AS (
        SELECT id, uprn_1, uprn_2 FROM {LOG} WHERE id = $1 AND {FREE}
        UNION
        SELECT other.id, other.uprn_1, other.uprn_2 FROM chain JOIN {LOG} AS other
            ON other.uprn_1 IN (chain.uprn_1, chain.uprn_2) OR other.uprn_2 IN (chain.uprn_1, chain.uprn_2)
        WHERE other.proc_flag = 'N'
    ),
    retried AS (UPDATE {LOG} SET {_AGAIN} WHERE id IN (SELECT id FROM chain) AND {FREE} RETURNING id),
    noted AS (INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'retry', id, $3 FROM retried)
    SELECT (SELECT count(*) FROM retried) AS retried, (SELECT count(*) FROM chain) AS linked
    """  # noqa: S608 - names of ours
# Whoever queues behind it need not wait for its time.
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
    """  # noqa: S608 - names of ours
# Who waits for no lock is in nobody's way: what is locked is about to be taken by a cycle, or to end.
_MANY: Final = """
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
# Like those of `_SKIP`; what is skipped itself is changed once only.
_WOKEN: Final = f"""
    followers AS MATERIALIZED (
        SELECT id FROM {LOG}
        WHERE proc_flag = 'N' AND next_attempt_at > now()
            AND wait_reason -> 'behind' IN (SELECT to_jsonb(id) FROM chosen) AND id NOT IN (SELECT id FROM chosen)
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    woken AS (UPDATE {LOG} AS log SET next_attempt_at = now() FROM followers WHERE log.id = followers.id),"""  # noqa: S608 - names of ours
_COUNT: Final = """
    WITH {gathered}
    SELECT count(*) FILTER (WHERE {free}) AS free, count(*) FILTER (WHERE {free} AND {touched}) AS touched,
        count(*) AS matching
    FROM gathered WHERE {where}
    """

# The audit is all that is left of them. What was mended stays for its time: it says what the log's message came from.
_DISCARD: Final = """
    WITH gone AS (
        DELETE FROM addr_sync_quarantine WHERE id = ANY($1::bigint[]) AND mended_as IS NULL RETURNING topic, msg_no
    )
    INSERT INTO addr_audit (who, action, reason)
    SELECT $2, 'discard', format('%s (%s, message %s)', $3::text, topic, msg_no) FROM gone RETURNING id
    """

_NOTE: Final = "INSERT INTO addr_audit (who, action, reason) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class By:
    """Who acts, and why."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of those that match."""

    changed: int
    busy: int
    """A cycle has them at this moment."""
    touched: int
    """A module has applied them, or may have: they were not skipped."""
    left: int
    """They were too many for one time."""


@dataclass(frozen=True, slots=True)
class Failed:
    """How many of those that match are there to be tried again, or skipped."""

    free: int
    busy: int
    """A cycle has them at this moment."""
    touched: int
    """Of the free ones: a module has applied them, or may have."""


async def retry(database: Database, message_id: int, by: By) -> bool:
    """Have a failed message tried again, unless a cycle has it; whether that is so."""
    async with database.connection() as connection:
        return await connection.fetchval(_RETRY, message_id, by.who, by.reason) is not None


async def retry_chain(database: Database, message_id: int, by: By) -> Changed:
    """Have a failed message tried again, and all failed ones that its addresses link to it, one after the other."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_RETRY_CHAIN, message_id, by.who, by.reason)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    return Changed(changed=row["retried"], busy=row["linked"] - row["retried"], touched=0, left=0)


async def skip(database: Database, message_id: int, by: By, *, though_touched: bool) -> bool:
    """Give a message up for good, unless a cycle or, where that counts, a module has it; whether that is so."""
    async with database.connection() as connection:
        done = await connection.fetchval(_SKIP, message_id, by.who, by.reason, _said(by), though_touched)
        return done is not None


async def retry_many(database: Database, wanted: Filter, limit: int, by: By) -> Changed:
    """Have all failed messages that match tried again, but for those that a cycle has.

    One that was told so before and has not failed since does not match, so that repeating comes to an end.
    """
    return await _changed(database, many(wanted, limit, by), limit)


async def skip_many(database: Database, wanted: Filter, limit: int, by: By) -> Changed:
    """Give up all failed messages that match, but for those that a cycle or a module has.

    Those that are named by their ids need not have failed.
    """
    return await _changed(database, many_skipped(wanted, limit, by), limit)


async def count_failed(database: Database, wanted: Filter) -> Failed:
    """Count the failed messages that match."""
    where = Where()
    gate = _gate(wanted, where)
    narrowed(wanted, where)
    text = _COUNT.format(gathered=gathered(gate), free=FREE, touched=TOUCHED, where=where.text)
    async with database.connection() as connection:
        row = await connection.fetchrow(text, *where.values)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    return Failed(free=row["free"], busy=row["matching"] - row["free"], touched=row["touched"])


async def discard(database: Database, ids: Sequence[int], by: By) -> int:
    """Remove messages from quarantine; how many there were."""
    async with database.connection() as connection:
        return len(await connection.fetch(_DISCARD, ids, by.who, by.reason))


async def note(database: Database, action: str, by: By) -> None:
    """Note what somebody did to all of them."""
    async with database.connection() as connection:
        await connection.execute(_NOTE, by.who, action, by.reason)


def many(wanted: Filter, limit: int, by: By) -> tuple[str, list[object]]:
    """The statement that tries many again, and its values."""
    where = Where(["(retry_times > 0 OR next_attempt_at > now())"])
    return _many(wanted, limit, by, where, action="'retry'", change=_AGAIN, also="", free=FREE, fits="true")


def many_skipped(wanted: Filter, limit: int, by: By) -> tuple[str, list[object]]:
    """The statement that gives many up, and its values."""
    where = Where()
    change = f"{_DONE}, reason = {where.bound(_said(by))}"
    fits = f"NOT {TOUCHED}"
    return _many(wanted, limit, by, where, action="'skip'", change=change, also=_WOKEN, free=_OPEN, fits=fits)


def _many(wanted: Filter, limit: int, by: By, where: Where, **parts: str) -> tuple[str, list[object]]:
    gate = _gate(wanted, where)
    narrowed(wanted, where)
    text = _MANY.format(
        log=LOG,
        gathered=gathered(gate),
        where=where.text,
        limit=where.bound(limit),
        who=where.bound(by.who),
        reason=where.bound(by.reason),
        **parts,
    )
    return text, where.values


def _gate(wanted: Filter, where: Where) -> str:
    """What is looked at: what has failed, or what is named, unless it is done."""
    if wanted.ids is None:
        return "proc_flag = 'N'"
    return f"id = ANY({where.bound(wanted.ids)}) AND proc_flag IS DISTINCT FROM 'Y'"


async def _changed(database: Database, statement: tuple[str, list[object]], limit: int) -> Changed:
    text, values = statement
    async with database.connection() as connection:
        row = await connection.fetchrow(text, *values)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    left, touched = max(0, row["fitting"] - limit), row["free"] - row["fitting"]
    busy = row["matching"] - row["changed"] - left - touched
    return Changed(changed=row["changed"], busy=busy, touched=touched, left=left)


def _said(by: By) -> str:
    return f"Skipped by {by.who}: {by.reason}"
