"""Settling: acknowledgements, what follows from them, and who is told, in one transaction a group.

However often and by whomever it is written, an acknowledgement once given stays, and a failed cycle counts once: only
a message that its cycle still has can fail in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final, TypeAlias

import asyncpg

from activities.addresses.loading import UNHEARD
from domain.addresses.cycle import Applied, ApplyOrder, Phase
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.addresses.verdicts import IN_FLIGHT_FLAGS, Listing, Verdict
from domain.addresses.waiting import Kind
from infra.database import Database
from infra.settings import AddressSettings

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Row: TypeAlias = "asyncpg.Record"

RETRY_PAUSE_MAX_SECONDS: Final = 86_400

_ALL: Final = " AND ".join(f"coalesce(log.{module}_ack = 'Y' OR told.{module} = 'Y', false)" for module in Module)
_DONE: Final = f"(log.proc_flag = 'Y' OR told.stale OR ({_ALL}))"
_OWNED: Final = (
    "(log.cycle_id = $13 AND (log.proc_flag = 'P' OR (log.proc_flag = 'N' AND log.next_attempt_at IS NULL)))"
)
_FAILS: Final = f"($14 AND {_OWNED} AND NOT {_DONE})"
_MODULE: Final = """
    {0}_ack = CASE WHEN log.{0}_ack = 'Y' THEN 'Y' ELSE coalesce(told.{0}, log.{0}_ack) END,
    {0}_ack_date = CASE WHEN log.{0}_ack = 'Y' OR told.{0} IS NULL THEN log.{0}_ack_date ELSE now() END,
    {0}_stack_trace = CASE WHEN log.{0}_ack = 'Y' OR told.{0} IS NULL THEN log.{0}_stack_trace ELSE told.{0}_trace END
    """
_SETTLE: Final = f"""
    UPDATE im_infi_addr_sync_log AS log SET
        {", ".join(_MODULE.format(module) for module in Module)},
        proc_flag = CASE WHEN {_DONE} THEN 'Y' WHEN {_FAILS} THEN 'N' ELSE log.proc_flag END,
        proc_update_date = CASE WHEN log.proc_flag IS DISTINCT FROM 'Y' AND ({_DONE} OR {_FAILS})
            THEN now() ELSE log.proc_update_date END,
        retry_times = log.retry_times + CASE WHEN {_FAILS} THEN 1 ELSE 0 END,
        next_attempt_at = CASE WHEN {_DONE} THEN NULL
            WHEN {_FAILS} THEN now() + least($15 * power(2, log.retry_times), $16) * interval '1 second'
            ELSE log.next_attempt_at END,
        superseded_by = coalesce(told.stale_by, log.superseded_by),
        reason = CASE WHEN told.stale AND told.stale_by IS NULL THEN $17
            WHEN {_DONE} AND log.proc_flag IS DISTINCT FROM 'Y' THEN NULL ELSE log.reason END,
        wait_reason = CASE WHEN log.proc_flag = 'Y' THEN log.wait_reason
            WHEN told.stale THEN {UNHEARD.format("told.reason::jsonb")}
            WHEN {_DONE} THEN NULL ELSE told.reason::jsonb END
    FROM unnest(
        $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::boolean[], $12::bigint[]
    ) AS told (id, ed, im, wfm, od, ed_trace, im_trace, wfm_trace, od_trace, reason, stale, stale_by)
    WHERE log.id = told.id
    RETURNING log.id, log.uprn_1, log.uprn_2, log.proc_flag, log.retry_times
    """  # noqa: S608 - constants of ours
NEEDLESS: Final = "A module had applied something younger already."

_YOUNGER: Final = """
    SELECT asked.id, (
        SELECT max(each.id) FROM (
            SELECT log.id FROM im_infi_addr_sync_log AS log
            WHERE log.uprn_1 IN (own.uprn_1, own.uprn_2) AND log.id > own.id AND (log.topic = $2) = (own.topic = $2)
            UNION ALL
            SELECT his.id FROM im_infi_addr_sync_log_his AS his
            WHERE his.uprn_1 IN (own.uprn_1, own.uprn_2) AND his.id > own.id AND (his.topic = $2) = (own.topic = $2)
            UNION ALL
            SELECT log.id FROM im_infi_addr_sync_log AS log
            WHERE log.uprn_2 IN (own.uprn_1, own.uprn_2) AND log.id > own.id AND own.topic = $2
            UNION ALL
            SELECT his.id FROM im_infi_addr_sync_log_his AS his
            WHERE his.uprn_2 IN (own.uprn_1, own.uprn_2) AND his.id > own.id AND own.topic = $2
        ) AS each
    ) AS younger
    FROM unnest($1::bigint[]) AS asked (id) JOIN im_infi_addr_sync_log AS own ON own.id = asked.id
    """
# What a message that is done says holds: older ones of its UPRN that wait for a person need nobody any more.
_OVERTAKE: Final = f"""
    UPDATE im_infi_addr_sync_log AS log
    SET proc_flag = 'Y', proc_update_date = now(), superseded_by = told.id,
        wait_reason = {UNHEARD.format("log.wait_reason")}, next_attempt_at = NULL
    FROM unnest($1::bigint[], $2::bigint[]) AS told (id, uprn)
    WHERE log.uprn_1 = told.uprn AND log.id < told.id AND log.topic <> $3 AND log.proc_flag = 'N'
    """  # noqa: S608 - constants of ours
_LIST: Final = """
    INSERT INTO addr_logical_deletes AS listed (address_id, uprn, log_id, od_flag, wfm_flag, ed_flag)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[])
    ON CONFLICT (address_id) DO UPDATE SET
        uprn = excluded.uprn, log_id = excluded.log_id,
        od_flag = CASE WHEN listed.log_id = excluded.log_id AND listed.od_flag = 'Y' THEN 'Y' ELSE excluded.od_flag END,
        wfm_flag =
            CASE WHEN listed.log_id = excluded.log_id AND listed.wfm_flag = 'Y' THEN 'Y' ELSE excluded.wfm_flag END,
        ed_flag = CASE WHEN listed.log_id = excluded.log_id AND listed.ed_flag = 'Y' THEN 'Y' ELSE excluded.ed_flag END,
        create_date = CASE WHEN listed.log_id = excluded.log_id THEN listed.create_date ELSE now() END,
        checked_at = NULL, removable_at = NULL,
        purged_at = CASE WHEN listed.log_id = excluded.log_id THEN listed.purged_at END
    WHERE listed.log_id <= excluded.log_id
    """
_REVIVE: Final = """
    DELETE FROM addr_logical_deletes AS listed USING unnest($1::bigint[]) AS told (address_id)
    WHERE listed.address_id = told.address_id AND listed.purged_at IS NULL
    """
_WAKE: Final = """
    UPDATE im_infi_addr_sync_log SET next_attempt_at = now()
    WHERE proc_flag = 'N' AND next_attempt_at > now() AND wait_reason ->> 'kind' = ANY($2::text[])
      AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
    """
_BLAME: Final = """
    UPDATE im_infi_addr_sync_log AS log SET reason = 'The address was deleted by message ' || deletion.msg_no || '.'
    FROM (
        SELECT DISTINCT ON (found.id) found.id, found.msg_no FROM (
            SELECT told.id, done.id AS log_id, done.msg_no
            FROM unnest($1::bigint[], $2::bigint[]) AS told (id, uprn)
            JOIN im_infi_addr_sync_log AS done ON done.uprn_1 = told.uprn AND done.topic = $3 AND done.proc_flag = 'Y'
            UNION ALL
            SELECT told.id, done.id, done.msg_no FROM unnest($1::bigint[], $2::bigint[]) AS told (id, uprn)
            JOIN im_infi_addr_sync_log_his AS done ON done.uprn_1 = told.uprn AND done.topic = $3
        ) AS found ORDER BY found.id, found.log_id DESC
    ) AS deletion WHERE log.id = deletion.id
    """


async def settle(
    database: Database, settings: AddressSettings, order: ApplyOrder, verdicts: Sequence[Verdict]
) -> Applied:
    """Write what became of a group."""
    if not verdicts:
        return Applied()
    async with database.connection() as connection, connection.transaction():
        rows = await _acknowledge(connection, settings, order, verdicts)
        done = [row for row in rows if row["proc_flag"] == "Y"]
        failed = [row for row in rows if row["proc_flag"] == "N"]
        needless = superseded = sum(each.stale for each in verdicts)
        if order.phase in (Phase.WRITE, Phase.DELETE) and done:
            ids, uprns = [row["id"] for row in done], [row["uprn_1"] for row in done]
            superseded += _count(await connection.execute(_OVERTAKE, ids, uprns, Topic.SWAP))
        await note_kept(connection, verdicts)
        await _revive(connection, {row["id"] for row in done}, verdicts)
        if settings.retry_pause_seconds:
            await _wake(connection, rows, verdicts)
        await _blame(connection, settings, failed, verdicts)
    return Applied(done=len(done) - needless, failed=len(failed) if order.is_last else 0, superseded=superseded)


async def _acknowledge(
    connection: Connection, settings: AddressSettings, order: ApplyOrder, verdicts: Sequence[Verdict]
) -> list[Row]:
    stale = [each.id for each in verdicts if each.stale]
    found = await connection.fetch(_YOUNGER, stale, Topic.SWAP) if stale else []
    younger: dict[int, int | None] = {row["id"]: row["younger"] for row in found}
    return await connection.fetch(
        _SETTLE,
        [each.id for each in verdicts],
        *([each.acks.get(module) for each in verdicts] for module in Module),
        *([each.traces.get(module) for each in verdicts] for module in Module),
        [each.reason.written if each.reason else None for each in verdicts],
        [each.stale for each in verdicts],
        [younger.get(each.id) for each in verdicts],
        order.cycle_id,
        order.is_last,
        settings.retry_pause_seconds,
        RETRY_PAUSE_MAX_SECONDS,
        NEEDLESS,
    )


async def note_kept(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Note addresses that modules keep because of orders in flight."""
    by_address: dict[int, Listing] = {}
    for each in (listing for verdict in verdicts for listing in verdict.listings):
        before = by_address.get(each.address_id)
        by_address[each.address_id] = before.joined(each) if before else each
    listings = sorted(by_address.values(), key=lambda each: each.address_id)
    if listings:
        await connection.execute(
            _LIST,
            [each.address_id for each in listings],
            [each.uprn for each in listings],
            [each.log_id for each in listings],
            *(["Y" if module in each.in_flight else "N" for each in listings] for module in IN_FLIGHT_FLAGS),
        )


async def _revive(connection: Connection, done: Set[int], verdicts: Iterable[Verdict]) -> None:
    """Addresses that live again in all modules are not to be purged, whichever message had them put away.

    Ids say nothing here: messages of two UPRNs that name one address may be applied in either order.
    """
    revived = sorted({address_id for each in verdicts if each.id in done for address_id in each.revived})
    if revived:
        await connection.execute(_REVIVE, revived)


async def _wake(connection: Connection, rows: Sequence[Row], verdicts: Sequence[Verdict]) -> None:
    """Whoever waits for an address that has appeared, or behind a message that is done, need not wait for its time."""
    heard = {each.id for each in verdicts if "Y" in each.acks.values()}
    uprns = [uprn for row in rows if row["id"] in heard for uprn in (row["uprn_1"], row["uprn_2"]) if uprn is not None]
    if uprns:
        await connection.execute(_WAKE, uprns, [Kind.MISSING, Kind.BEHIND])


async def _blame(
    connection: Connection, settings: AddressSettings, failed: Sequence[Row], verdicts: Iterable[Verdict]
) -> None:
    """Say of swaps that are given up who deleted the address that they miss."""
    given_up = {row["id"] for row in failed if row["retry_times"] >= settings.retries}
    lacking = [
        (each.id, uprn) for each in verdicts if each.id in given_up and each.reason for uprn in each.reason.missing
    ]
    if lacking:
        await connection.execute(_BLAME, *map(list, zip(*lacking, strict=True)), Topic.DELETE)


def _count(status: str) -> int:
    """How many rows a statement has changed, by what PostgreSQL says of it."""
    return int(status.rpartition(" ")[2])
