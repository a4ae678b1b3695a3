"""Acknowledgements of the modules and what follows from them, written in one transaction for each group.

However often results are written, an acknowledgement once given stays, and a failed cycle counts once: only a message
that its cycle still has can fail in it. A message that had to wait, or whose modules were away, has not failed: it
is retried as often as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import asyncpg

from domain.addresses.activity_models import AppliedMessageCounts, ApplyStepInput, CyclePhase
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from domain.addresses.results import IN_FLIGHT_MODULES, MessageLogUpdate, NewLogicalDelete
from infra.address_settings import AddressSettings
from infra.database import Database
from stores.addresses.cycle import ARCHIVED_COLUMNS, KEEP_UNSURE, TOUCHED

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Row: TypeAlias = "asyncpg.Record"

RETRY_PAUSE_MAX_SECONDS: Final = 86_400

_ALL: Final = " AND ".join(f"coalesce(log.{module}_ack = 'Y' OR given.{module} = 'Y', false)" for module in Module)
_DONE: Final = f"(log.proc_flag = 'Y' OR given.stale OR ({_ALL}))"
_OWNED: Final = (
    "(log.cycle_id = $13 AND (log.proc_flag = 'P' OR (log.proc_flag = 'N' AND log.next_attempt_at IS NULL)))"
)
_FAILS: Final = f"($14 AND {_OWNED} AND NOT {_DONE})"
_TRIES: Final = "CASE WHEN given.counts_anew THEN 0 ELSE log.retry_times END"
# A worker that was suspended may report late: on a done message, only its acknowledgements count.
_KEEPS_ACK: Final = "(log.{0}_ack = 'Y' OR given.{0} IS NULL OR (log.proc_flag = 'Y' AND given.{0} <> 'Y'))"
_SET_MODULE: Final = f"""
    {{0}}_ack = CASE WHEN {_KEEPS_ACK} THEN log.{{0}}_ack ELSE given.{{0}} END,
    {{0}}_ack_date = CASE WHEN {_KEEPS_ACK} THEN log.{{0}}_ack_date ELSE now() END,
    {{0}}_stack_trace = CASE WHEN {_KEEPS_ACK} THEN log.{{0}}_stack_trace ELSE given.{{0}}_trace END
    """
_WRITE_RESULTS: Final = f"""
    UPDATE im_infi_addr_sync_log AS log SET
        {", ".join(_SET_MODULE.format(module) for module in Module)},
        proc_flag = CASE WHEN {_DONE} THEN 'Y' WHEN {_FAILS} THEN 'N' ELSE log.proc_flag END,
        proc_update_date = CASE WHEN log.proc_flag IS DISTINCT FROM 'Y' AND ({_DONE} OR {_FAILS})
            THEN now() ELSE log.proc_update_date END,
        retry_times = CASE WHEN {_FAILS} AND {_TRIES} < $20 THEN least({_TRIES} + given.tries, $20)
            ELSE log.retry_times END,
        next_attempt_at = CASE WHEN {_DONE} THEN NULL
            WHEN {_FAILS} AND given.tries = 0 THEN now() + $17 * interval '1 second'
            WHEN {_FAILS} THEN now() + least($15 * power(2, least({_TRIES}, 30)), $16) * interval '1 second'
            ELSE log.next_attempt_at END,
        superseded_by = CASE WHEN log.proc_flag = 'Y' THEN log.superseded_by
            ELSE coalesce(given.stale_by, log.superseded_by) END,
        reason = CASE WHEN log.proc_flag = 'Y' THEN log.reason WHEN given.why IS NOT NULL THEN given.why
            WHEN {_DONE} OR {_OWNED} THEN NULL ELSE log.reason END,
        wait_reason = CASE WHEN log.proc_flag = 'Y' THEN log.wait_reason
            WHEN given.stale THEN {KEEP_UNSURE.format("given.reason::jsonb")}
            WHEN {_DONE} THEN NULL ELSE given.reason::jsonb END
    FROM unnest(
        $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::boolean[], $12::bigint[], $18::int[], $19::text[], $21::boolean[]
    ) AS given (
        id, ed, im, wfm, od, ed_trace, im_trace, wfm_trace, od_trace, reason, stale, stale_by, tries, why, counts_anew
    )
    WHERE log.id = given.id
    RETURNING log.id, log.uprn_1, log.uprn_2, log.proc_flag, log.retry_times
    """  # noqa: S608 - constants only
# Most messages are done with this call, and leave the log with their acknowledgements in one statement, instead of
# being written there first. A message that was done before stays, so that `_WRITE_RESULTS` decides about it.
_APPLIED_VALUES: Final = {
    "proc_flag": "'Y'",
    "proc_update_date": "now()",
    **dict.fromkeys(("next_attempt_at", "reason", "wait_reason"), "NULL"),
    **{f"{each}_ack": "'Y'" for each in Module},
    **{f"{each}_ack_date": f"CASE WHEN {each}_ack = 'Y' THEN {each}_ack_date ELSE now() END" for each in Module},
    **{f"{each}_stack_trace": f"CASE WHEN {each}_ack = 'Y' THEN {each}_stack_trace END" for each in Module},
}
_MOVE_APPLIED: Final = f"""
    WITH moved AS (
        DELETE FROM im_infi_addr_sync_log WHERE id = ANY($1::bigint[]) AND proc_flag IS DISTINCT FROM 'Y'
        RETURNING {", ".join(ARCHIVED_COLUMNS)}
    )
    INSERT INTO im_infi_addr_sync_log_his ({", ".join(ARCHIVED_COLUMNS)})
    SELECT {", ".join(_APPLIED_VALUES.get(column, column) for column in ARCHIVED_COLUMNS)} FROM moved
    RETURNING id, uprn_1, uprn_2, proc_flag, retry_times
    """  # noqa: S608 - constants only
NEEDLESS_REASON: Final = "A module had applied something younger already."
OVERTAKEN_REASON: Final = (
    "{0} was applied before and exchanged one of these addresses. Applied now, this one would not do "
    "what it was meant to: skip it, or publish it anew if it is still needed."
)
FORGOTTEN_SWAP: Final = "A later swap that is neither in the log nor in its history any more"

_APPLIED: Final = "coalesce('Y' IN (ed_ack, im_ack, wfm_ack, od_ack), false)"
_YOUNGEST_WRITE: Final = f"""
    SELECT own.id, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_1 = own.uprn_1 AND id > own.id AND topic <> $2 AND {_APPLIED}
            UNION ALL
            SELECT id FROM im_infi_addr_sync_log_his
            WHERE uprn_1 = own.uprn_1 AND id > own.id AND topic <> $2 AND {_APPLIED}
        ) AS each
    ) AS younger
    FROM im_infi_addr_sync_log AS own WHERE own.id = ANY($1::bigint[])
    """  # noqa: S608 - constants only
_LATER_SWAPS: Final = " UNION ALL ".join(
    f"""
    SELECT id, msg_no, {_APPLIED} AS is_applied, {TOUCHED} AS is_touched FROM {table}
    WHERE {column} IN (own.uprn_1, own.uprn_2) AND id > own.id AND topic = $2
      AND ({_APPLIED} OR {TOUCHED} OR proc_flag = 'P')
    """  # noqa: S608 - constants only
    for table in ("im_infi_addr_sync_log", "im_infi_addr_sync_log_his")
    for column in ("uprn_1", "uprn_2")
)
# An acknowledged swap was applied for certain; one that a module may have applied, or that a cycle is processing, may
# be the one that the module reports.
_NEXT_SWAP: Final = f"""
    SELECT own.id, next.id AS younger, next.msg_no
    FROM im_infi_addr_sync_log AS own CROSS JOIN LATERAL (
        {_LATER_SWAPS} ORDER BY is_applied DESC, is_touched DESC, id LIMIT 1
    ) AS next
    WHERE own.id = ANY($1::bigint[])
    """  # noqa: S608 - constants only
# A done write supersedes older writes of its UPRN that failed or were given up.
_OVERTAKE: Final = f"""
    UPDATE im_infi_addr_sync_log AS log
    SET proc_flag = 'Y', proc_update_date = now(), superseded_by = given.id,
        wait_reason = {KEEP_UNSURE.format("log.wait_reason")}, next_attempt_at = NULL
    FROM unnest($1::bigint[], $2::bigint[]) AS given (id, uprn)
    WHERE log.uprn_1 = given.uprn AND log.id < given.id AND log.topic <> $3 AND log.proc_flag = 'N'
    """  # noqa: S608 - constants only
_INSERT_LOGICAL_DELETES: Final = """
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
_REMOVE_REVIVED: Final = """
    DELETE FROM addr_logical_deletes AS listed
    USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS given (address_id, uprn, log_id)
    WHERE listed.address_id = given.address_id AND listed.purged_at IS NULL
      AND (listed.uprn <> given.uprn OR listed.log_id <= given.log_id)
    """
_WAKE: Final = """
    UPDATE im_infi_addr_sync_log SET next_attempt_at = now()
    WHERE proc_flag = 'N' AND next_attempt_at > now() AND wait_reason ->> 'kind' = ANY($2::text[])
      AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
    """
# A swap that was given up because a side was missing gets one more try once the side is there.
_RETRY_SWAPS: Final = f"""
    UPDATE im_infi_addr_sync_log AS log SET next_attempt_at = now(), retry_times = $2 - 1
    WHERE proc_flag = 'N' AND next_attempt_at IS NOT NULL AND retry_times >= $2
      AND wait_reason ->> 'kind' = '{WaitKind.MISSING}'
      AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
      AND EXISTS (
        SELECT FROM jsonb_array_elements_text(wait_reason -> 'missing') AS lacking WHERE lacking::bigint = ANY($1)
      )
    """  # noqa: S608 - constants only
_EXPLAIN_MISSING: Final = """
    UPDATE im_infi_addr_sync_log AS log SET reason = 'The address was deleted by message ' || deletion.msg_no || '.'
    FROM (
        SELECT DISTINCT ON (found.id) found.id, found.msg_no FROM (
            SELECT given.id, done.id AS log_id, done.msg_no
            FROM unnest($1::bigint[], $2::bigint[]) AS given (id, uprn)
            JOIN im_infi_addr_sync_log AS done ON done.uprn_1 = given.uprn AND done.topic = $3 AND done.proc_flag = 'Y'
            UNION ALL
            SELECT given.id, done.id, done.msg_no FROM unnest($1::bigint[], $2::bigint[]) AS given (id, uprn)
            JOIN im_infi_addr_sync_log_his AS done ON done.uprn_1 = given.uprn AND done.topic = $3
        ) AS found ORDER BY found.id, found.log_id DESC
    ) AS deletion WHERE log.id = deletion.id
    """


async def write_results_and_count_ended_messages(
    database: Database, settings: AddressSettings, params: ApplyStepInput, updates: Sequence[MessageLogUpdate]
) -> AppliedMessageCounts:
    """Write the updates of a group, and return the counts."""
    if not updates:
        return AppliedMessageCounts()
    async with database.connection() as connection, connection.transaction():
        applied = [each.id for each in updates if each.is_applied_everywhere]
        moved = await connection.fetch(_MOVE_APPLIED, applied) if applied else []
        moved_ids = {row["id"] for row in moved}
        left = [each for each in updates if each.id not in moved_ids]
        rows = [*moved, *(await _write_acknowledgements(connection, settings, params, left) if left else ())]
        done = [row for row in rows if row["proc_flag"] == "Y"]
        failed = [row for row in rows if row["proc_flag"] == "N"]
        stale = {each.id for each in updates if each.stale}
        needless = superseded = sum(row["id"] in stale for row in done)
        if params.phase in (CyclePhase.WRITE, CyclePhase.DELETE) and done:
            ids, uprns = [row["id"] for row in done], [row["uprn_1"] for row in done]
            superseded += _parse_row_count_of_status(await connection.execute(_OVERTAKE, ids, uprns, Topic.SWAP))
        await insert_or_merge_logical_deletes(connection, updates)
        await _remove_revived_from_logical_deletes(connection, done, updates)
        await _make_messages_due_that_waited_for_these(connection, settings, rows, updates)
        if params.phase is CyclePhase.WRITE and done:
            await connection.execute(_RETRY_SWAPS, [row["uprn_1"] for row in done], settings.failed_cycles_max)
        await _write_causing_delete_into_failed_swaps(connection, settings, failed, updates)
    paused = {each.id for each in updates if each.reason and each.reason.is_only_for_paused_modules}
    failures = sum(row["id"] not in paused for row in failed) if params.is_phase_without_later_retry else 0
    return AppliedMessageCounts(done=len(done) - needless, failed=failures, superseded=superseded)


async def _write_acknowledgements(
    connection: Connection, settings: AddressSettings, params: ApplyStepInput, updates: Sequence[MessageLogUpdate]
) -> list[Row]:
    younger = await _find_superseding_messages(connection, [each.id for each in updates if each.stale])
    overtaking = await _set_wait_reasons_to_overtaking_swaps_and_describe_them(
        connection, [each for each in updates if each.overtaken]
    )
    reasons = {each.id: NEEDLESS_REASON for each in updates if each.stale and younger.get(each.id) is None} | overtaking
    return await connection.fetch(
        _WRITE_RESULTS,
        [each.id for each in updates],
        *([each.acks.get(module) for each in updates] for module in Module),
        *([each.traces.get(module) for each in updates] for module in Module),
        [each.reason.to_json() if each.reason else None for each in updates],
        [each.stale for each in updates],
        [younger.get(each.id) for each in updates],
        params.cycle_id,
        params.is_phase_without_later_retry,
        settings.retry_pause_seconds,
        RETRY_PAUSE_MAX_SECONDS,
        settings.pause_seconds,
        [settings.failed_cycles_max if each.overtaken else int(each.counts) for each in updates],
        [reasons.get(each.id) for each in updates],
        settings.failed_cycles_max,
        [each.counts_anew for each in updates],
    )


async def _find_superseding_messages(connection: Connection, stale: Sequence[int]) -> dict[int, int | None]:
    """Return the createUpdate or delete that superseded each message, where the log still has it."""
    found = await connection.fetch(_YOUNGEST_WRITE, stale, Topic.SWAP) if stale else []
    return {row["id"]: row["younger"] for row in found}


async def _set_wait_reasons_to_overtaking_swaps_and_describe_them(
    connection: Connection, overtaken: Sequence[MessageLogUpdate]
) -> dict[int, str]:
    """Return the reason for each overtaken swap, and set the later swap in its wait reason."""
    found = await connection.fetch(_NEXT_SWAP, [each.id for each in overtaken], Topic.SWAP) if overtaken else []
    by_id = {row["id"]: row for row in found}
    for each in overtaken:
        if each.reason and each.id in by_id:
            each.reason = each.reason.model_copy(update={"behind": by_id[each.id]["younger"]})
    return {
        each.id: OVERTAKEN_REASON.format(
            f"Message {by_id[each.id]['msg_no']}, a later swap," if each.id in by_id else FORGOTTEN_SWAP
        )
        for each in overtaken
    }


async def insert_or_merge_logical_deletes(connection: Connection, updates: Sequence[MessageLogUpdate]) -> None:
    """Insert the addresses that modules keep because of orders in flight."""
    by_address: dict[int, NewLogicalDelete] = {}
    for each in (listing for verdict in updates for listing in verdict.listings):
        before = by_address.get(each.address_id)
        by_address[each.address_id] = before.merge_reports_of_modules(each) if before else each
    listings = sorted(by_address.values(), key=lambda each: each.address_id)
    if listings:
        await connection.execute(
            _INSERT_LOGICAL_DELETES,
            [each.address_id for each in listings],
            [each.uprn for each in listings],
            [each.log_id for each in listings],
            *(["Y" if module in each.in_flight else "N" for each in listings] for module in IN_FLIGHT_MODULES),
        )


async def _remove_revived_from_logical_deletes(
    connection: Connection, done: Iterable[Row], updates: Iterable[MessageLogUpdate]
) -> None:
    """Remove addresses that are live again in all modules from the list of logical deletes.

    For one UPRN the younger message counts in every module: a delete that some modules applied before the last one
    applied this older createUpdate keeps its row. For two UPRNs with one address the ids do not say, since their
    messages may be applied in either order.
    """
    uprns = {row["id"]: row["uprn_1"] for row in done}
    revived = sorted(
        (address_id, uprns[each.id], each.id) for each in updates if each.id in uprns for address_id in each.revived
    )
    if revived:
        await connection.execute(_REMOVE_REVIVED, *map(list, zip(*revived, strict=True)))


async def _make_messages_due_that_waited_for_these(
    connection: Connection, settings: AddressSettings, rows: Sequence[Row], updates: Sequence[MessageLogUpdate]
) -> None:
    """Make messages due now that wait for an address that has appeared, or for a message that has ended."""
    acknowledged = {each.id for each in updates if "Y" in each.acks.values()}
    if uprns := _list_uprns(row for row in rows if row["id"] in acknowledged):
        await connection.execute(_WAKE, uprns, [WaitKind.MISSING, WaitKind.BEHIND])
    if uprns := _list_uprns(
        row
        for row in rows
        if _is_done_or_out_of_retries(row, settings.failed_cycles_max) and row["id"] not in acknowledged
    ):
        await connection.execute(_WAKE, uprns, [WaitKind.BEHIND])


def _is_done_or_out_of_retries(row: Row, retries: int) -> bool:
    """Whether it is done, or given up."""
    return bool(row["proc_flag"] == "Y" or (row["proc_flag"] == "N" and row["retry_times"] >= retries))


def _list_uprns(rows: Iterable[Row]) -> list[int]:
    return [uprn for row in rows for uprn in (row["uprn_1"], row["uprn_2"]) if uprn is not None]


async def _write_causing_delete_into_failed_swaps(
    connection: Connection, settings: AddressSettings, failed: Sequence[Row], updates: Iterable[MessageLogUpdate]
) -> None:
    """Write into given-up swaps which message deleted the address that they miss."""
    given_up = {row["id"] for row in failed if row["retry_times"] >= settings.failed_cycles_max}
    lacking = [
        (each.id, uprn)
        for each in updates
        if each.id in given_up and each.reason and each.reason.kind is WaitKind.MISSING
        for uprn in each.reason.missing
    ]
    if lacking:
        await connection.execute(_EXPLAIN_MISSING, *map(list, zip(*lacking, strict=True)), Topic.DELETE)


def _parse_row_count_of_status(status: str) -> int:
    """Parse the number of changed rows from PostgreSQL's status."""
    return int(status.rpartition(" ")[2])
