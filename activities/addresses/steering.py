"""Steering: what operators do to messages. Only what no cycle has is touched, in the statement that also notes who."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from activities.addresses.loading import TOUCHED
from activities.addresses.searching import FREE, LOG, Filter, Where, gathered, narrowed
from infra.database import Database

RETRIED_MAX: Final = 10_000

_AGAIN: Final = "retry_times = 0, next_attempt_at = now()"
_RETRY: Final = f"""
    WITH retried AS (UPDATE {LOG} SET {_AGAIN} WHERE id = $1 AND {FREE} RETURNING id)
    INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'retry', id, $3 FROM retried RETURNING log_id
    """  # noqa: S608 - names of ours
_SKIP: Final = f"""
    WITH skipped AS (
        UPDATE {LOG} SET proc_flag = 'Y', proc_update_date = now(), next_attempt_at = NULL, reason = $4
        WHERE id = $1 AND (proc_flag IS NULL OR {FREE}) AND ($5 OR NOT {TOUCHED}) RETURNING id
    )
    INSERT INTO addr_audit (who, action, log_id, reason) SELECT $2, 'skip', id, $3 FROM skipped RETURNING log_id
    """  # noqa: S608 - names of ours
# Who waits for no lock is in nobody's way: what is locked is about to be taken by a cycle, or to end.
_RETRY_MANY: Final = """
    WITH {gathered},
    matching AS MATERIALIZED (SELECT id, {free} AS is_free FROM gathered WHERE {where}),
    chosen AS MATERIALIZED (
        SELECT id FROM {log}
        WHERE id = ANY(ARRAY(SELECT id FROM matching WHERE is_free ORDER BY id LIMIT {limit})) AND {free}
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    retried AS (UPDATE {log} AS log SET {again} FROM chosen WHERE log.id = chosen.id RETURNING log.id),
    noted AS (INSERT INTO addr_audit (who, action, log_id, reason) SELECT {who}, 'retry', id, {reason} FROM retried)
    SELECT (SELECT count(*) FROM retried) AS retried, (SELECT count(*) FROM matching) AS matching,
        (SELECT count(*) FROM matching WHERE is_free) AS free
    """


_NOTE: Final = "INSERT INTO addr_audit (who, action, reason) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class By:
    """Who acts, and why."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of those that match."""

    retried: int
    busy: int
    """A cycle has them at this moment."""
    left: int
    """They were too many for one time."""


async def retry(database: Database, message_id: int, by: By) -> bool:
    """Have a failed message tried again, unless a cycle has it; whether that is so."""
    async with database.connection() as connection:
        return await connection.fetchval(_RETRY, message_id, by.who, by.reason) is not None


async def skip(database: Database, message_id: int, by: By, *, though_touched: bool) -> bool:
    """Give a message up for good, unless a cycle or, where that counts, a module has it; whether that is so."""
    said = f"Skipped by {by.who}: {by.reason}"
    async with database.connection() as connection:
        done = await connection.fetchval(_SKIP, message_id, by.who, by.reason, said, though_touched)
        return done is not None


async def retry_many(database: Database, wanted: Filter, limit: int, by: By) -> Retried:
    """Have all failed messages that match tried again, but for those that a cycle has.

    One that was told so before and has not failed since does not match, so that repeating comes to an end.
    """
    text, values = many(wanted, limit, by)
    async with database.connection() as connection:
        row = await connection.fetchrow(text, *values)
    if row is None:
        raise LookupError("a statement of counts has answered no row")
    left = max(0, row["free"] - limit)
    return Retried(retried=row["retried"], busy=row["matching"] - row["retried"] - left, left=left)


async def note(database: Database, action: str, by: By) -> None:
    """Note what somebody did to all of them."""
    async with database.connection() as connection:
        await connection.execute(_NOTE, by.who, action, by.reason)


def many(wanted: Filter, limit: int, by: By) -> tuple[str, list[object]]:
    """The statement that tries many again, and its values."""
    where = Where(["retry_times > 0"])
    narrowed(wanted, where)
    text = _RETRY_MANY.format(
        log=LOG,
        gathered=gathered("proc_flag = 'N'"),
        free=FREE,
        again=_AGAIN,
        where=where.text,
        limit=where.bound(limit),
        who=where.bound(by.who),
        reason=where.bound(by.reason),
    )
    return text, where.values
