"""Messages on their way to the modules: which are to be sent, which must wait, and which got no certain answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg
import msgspec

from domain.addresses import ordering
from domain.addresses.activity_models import ApplyStepInput, CyclePhase
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, Operation, OperationKind, build_operation_id
from domain.addresses.ordering import MessageAboutToBeSent, SwapMessageUprns, UnfinishedMessage, WaitKind, WaitReason
from domain.addresses.results import MessageLogUpdate
from infra.address_settings import AddressSettings
from infra.database import Database
from stores.addresses import acknowledgements
from stores.addresses.cycle import OWNED, TOUCHED, WAITS_FOR_PAUSE
from stores.keyset import SqlOrderAndAfterCondition
from stores.tables.addresses import build_unfinished_condition

Row: TypeAlias = "asyncpg.Record"
_ACK_COLUMNS: Final = [(module, f"{module}_ack") for module in Module]
_ACKS: Final = ", ".join(name for _, name in _ACK_COLUMNS)
# Of a payload only what is sent: what else publishers write into it may be long. To find a field, PostgreSQL decodes
# all text of a payload, and fails on the escape of a NUL, which may be in the first of two equal keys.
_MESSAGE_COLUMNS: Final = f"""
    id, topic, uprn_1, uprn_2, address_id, {_ACKS}, wait_reason::text, CASE
        WHEN topic = '{Topic.CREATE_UPDATE}' OR topic = '{Topic.SWAP}' AND strpos(payload::text, '\\u0000') > 0
        THEN payload::text
        WHEN topic = '{Topic.SWAP}'
        THEN json_build_object('delete_after', coalesce(payload -> 'delete_after', 'false'))::text
    END AS payload
    """
_SIZES: Final = f"""
    SELECT id, octet_length(payload::text) AS bytes FROM im_infi_addr_sync_log
    WHERE id = ANY($1::bigint[]) AND topic <> '{Topic.DELETE}'
    """  # noqa: S608 - constants only
PART_MAX_BYTES: Final = 4 * 1024 * 1024
"""Payloads that are loaded together; decoded and once more encoded for each module, they take many times as much."""
_LOAD_GROUP: Final = f"""
    SELECT {_MESSAGE_COLUMNS}
    FROM im_infi_addr_sync_log WHERE id = ANY($1::bigint[]) AND cycle_id = $2 AND {OWNED} ORDER BY id
    """  # noqa: S608 - constants only
_PAUSED_MODULES: Final = (
    f"ARRAY(SELECT jsonb_array_elements_text(CASE WHEN {WAITS_FOR_PAUSE} THEN wait_reason -> 'paused' END))"
)
_UNFINISHED_NEAR_SWAPS: Final = f"""
    SELECT id, topic, uprn_1, uprn_2, {OWNED} OR retry_times < $3 AS due, {TOUCHED} AS touched,
        {_PAUSED_MODULES} AS paused
    FROM im_infi_addr_sync_log
    WHERE proc_flag IN ('P', 'N') AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
      AND (topic <> '{Topic.SWAP}' OR id < $2 OR {TOUCHED})
    """  # noqa: S608 - constants only
_UNFINISHED_NEAR_WRITES: Final = f"""
    SELECT id, topic, uprn_1, uprn_2, true AS due, true AS touched, {_PAUSED_MODULES} AS paused
    FROM im_infi_addr_sync_log
    WHERE proc_flag IN ('P', 'N') AND topic = '{Topic.SWAP}' AND {TOUCHED}
      AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
    """  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class UnfinishedLogMessage:
    """A message of the log, as it is sent."""

    operation: Operation
    topic: Topic
    waits_for: Sequence[Module]
    """Modules that have not acknowledged it."""
    reason: WaitReason

    @property
    def as_message_about_to_be_sent(self) -> MessageAboutToBeSent:
        uprn_2 = self.operation.uprn_2
        uprns = (self.operation.uprn,) if uprn_2 is None else (self.operation.uprn, uprn_2)
        return MessageAboutToBeSent(self.operation.seq, self.topic, uprns, self.is_touched)

    @property
    def is_touched(self) -> bool:
        """Whether a module has applied it, or may have."""
        return len(self.waits_for) < len(_ACK_COLUMNS) or self.reason.has_unsure_or_inherited_effect


async def split_into_parts_by_size(database: Database, ids: Sequence[int]) -> list[list[int]]:
    """Split messages into parts that may be loaded together, in the same order; one message alone may be larger."""
    if len(ids) <= 1:
        return [list(ids)] if ids else []
    async with database.connection() as connection:
        sizes = {row["id"]: row["bytes"] for row in await connection.fetch(_SIZES, ids)}
    return ordering.split_by_size(ids, sizes, PART_MAX_BYTES)


async def load_unfinished_messages(database: Database, cycle_id: str, ids: Sequence[int]) -> list[UnfinishedLogMessage]:
    """Load the unfinished messages of a group or of a part of it; none if its cycle is over."""
    async with database.connection() as connection:
        return [build_logged_message(row) for row in await connection.fetch(_LOAD_GROUP, ids, cycle_id)]


class _RecordAndDeleteAfter(msgspec.Struct):
    """What the columns of a message lack; intake has checked what its topic needs of it."""

    # Any: a field may be there twice, of which only the last one counts, or in a topic that does not have it.
    record: Any = None
    delete_after: Any = False


_PAYLOAD: Final = msgspec.json.Decoder(_RecordAndDeleteAfter)
_ALL_MODULES: Final = tuple(Module)
_NO_WAIT_REASON: Final = WaitReason()


def build_logged_message(row: Row) -> UnfinishedLogMessage:
    """Build a message from its row."""
    topic = Topic(row["topic"])
    waits_for = [module for module, ack in _ACK_COLUMNS if row[ack] != "Y"]
    return UnfinishedLogMessage(
        operation=_build_operation(topic, row),
        topic=topic,
        waits_for=_ALL_MODULES if len(waits_for) == len(_ALL_MODULES) else tuple(waits_for),
        reason=_parse_wait_reason(row["wait_reason"]),
    )


def _build_operation(topic: Topic, row: Row) -> Operation:
    """Build the operation that a message asks of a module; intake has written its columns from its payload."""
    seq, uprn = row["id"], row["uprn_1"]
    op_id = build_operation_id(seq)
    match topic:
        case Topic.SWAP:
            delete_after = _PAYLOAD.decode(row["payload"]).delete_after
            return Operation(op_id, seq, OperationKind.SWAP, uprn, row["uprn_2"], delete_after=delete_after)
        case Topic.CREATE_UPDATE:
            record = _PAYLOAD.decode(row["payload"]).record
            return Operation(op_id, seq, OperationKind.UPSERT, uprn, None, row["address_id"], record)
        case Topic.DELETE:
            return Operation(op_id, seq, OperationKind.DELETE, uprn)


def _parse_wait_reason(written: str | None) -> WaitReason:
    return WaitReason.from_column(msgspec.json.decode(written)) if written else _NO_WAIT_REASON


class BlockingMessage(NamedTuple):
    """A message that another one waits for."""

    id: int
    paused: Sequence[Module] = ()
    """Modules whose pause it waits for."""


async def find_blocker_of_each_blocked_message(
    database: Database, settings: AddressSettings, params: ApplyStepInput, messages: Sequence[UnfinishedLogMessage]
) -> dict[int, BlockingMessage]:
    """Return the messages that must not be sent yet, each with one that it waits for."""
    operations = [each.operation for each in messages]
    uprns = [each.uprn for each in operations] + [each.uprn_2 for each in operations if each.uprn_2 is not None]
    last = max((each.seq for each in operations), default=0)
    async with database.connection() as connection:
        if params.phase in (CyclePhase.SWAP, CyclePhase.WAIT):
            rows = await connection.fetch(_UNFINISHED_NEAR_SWAPS, uprns, last, settings.failed_cycles_max)
        else:
            rows = await connection.fetch(_UNFINISHED_NEAR_WRITES, uprns)
    if not rows:
        return {}
    candidates = [each.as_message_about_to_be_sent for each in messages]
    found = ordering.find_first_blocker_of_each_message(candidates, [_build_unfinished_message(row) for row in rows])
    paused = {row["id"]: [Module(module) for module in row["paused"]] for row in rows}
    return {id_: BlockingMessage(behind, paused[behind]) for id_, behind in found.items()}


def _build_unfinished_message(row: Row) -> UnfinishedMessage:
    is_swap = row["topic"] == Topic.SWAP
    uprns = (row["uprn_1"], row["uprn_2"]) if is_swap else (row["uprn_1"],)
    return UnfinishedMessage(row["id"], is_swap, uprns, row["due"], row["touched"])


_IS_GIVEN_UP: Final = f"""
    proc_flag = 'N' AND next_attempt_at IS NOT NULL AND retry_times >= $1
    AND wait_reason ->> 'kind' = '{WaitKind.MISSING}'
    """
_PLACE: Final = SqlOrderAndAfterCondition(("id",), is_descending=False)
_GIVEN_UP_SWAPS: Final = f"""
    SELECT {_MESSAGE_COLUMNS} FROM im_infi_addr_sync_log
    WHERE {build_unfinished_condition(Topic.SWAP)} AND {_IS_GIVEN_UP} AND {_PLACE.format_after_condition("$2")}
    {_PLACE.order_by} LIMIT $3
    """  # noqa: S608 - constants only
_ALLOW_ONE_MORE_TRY: Final = f"""
    UPDATE im_infi_addr_sync_log SET next_attempt_at = now(), retry_times = $1 - 1
    WHERE id = ANY($2::bigint[]) AND {_IS_GIVEN_UP} RETURNING id
    """  # noqa: S608 - constants only


async def list_swaps_out_of_retries_for_missing_side(
    database: Database, retries: int, after: int, limit: int
) -> list[UnfinishedLogMessage]:
    """Return swaps that were given up because a side was missing, in order of their ids."""
    async with database.connection() as connection:
        return [build_logged_message(row) for row in await connection.fetch(_GIVEN_UP_SWAPS, retries, after, limit)]


async def retry_abandoned_swaps_once(database: Database, retries: int, ids: Sequence[int]) -> list[int]:
    """Give each of these swaps one more try if it still is given up; return the ids of those."""
    async with database.connection() as connection:
        return [row["id"] for row in await connection.fetch(_ALLOW_ONE_MORE_TRY, retries, ids)]


# While a later message of its UPRN is unfinished, a delayed call of this one might still take effect.
_LOAD_UNCONFIRMED: Final = f"""
    SELECT {_MESSAGE_COLUMNS}, NOT EXISTS (
        SELECT 1 FROM im_infi_addr_sync_log AS later
        WHERE later.uprn_1 = log.uprn_1 AND later.id > log.id AND later.proc_flag IN ('P', 'N')
          AND (later.topic = '{Topic.SWAP}') = (log.topic = '{Topic.SWAP}')
    ) AS is_final
    FROM im_infi_addr_sync_log AS log
    WHERE id = ANY($1::bigint[]) AND proc_flag = 'Y' AND wait_reason ? 'unsure' ORDER BY id
    """  # noqa: S608 - constants only
_UNCONFIRMED: Final = f"""
    SELECT id FROM im_infi_addr_sync_log
    WHERE proc_flag = 'Y' AND wait_reason ? 'unsure' AND NOT wait_reason -> 'unsure' <@ $1::text::jsonb
        AND {_PLACE.format_after_condition("$2")}
    {_PLACE.order_by} LIMIT $3
    """  # noqa: S608 - constants only
_CONFIRM_ACK: Final = """
    {0}_ack = coalesce(given.{0}, log.{0}_ack),
    {0}_ack_date = CASE WHEN given.{0} IS NULL THEN log.{0}_ack_date ELSE now() END,
    {0}_stack_trace = CASE WHEN given.{0} IS NULL THEN log.{0}_stack_trace END
    """
_CONFIRM: Final = f"""
    UPDATE im_infi_addr_sync_log AS log
    SET {", ".join(map(_CONFIRM_ACK.format, Module))}, wait_reason = given.reason::jsonb
    FROM unnest($1::bigint[], $2::text[], {", ".join(f"${number}::text[]" for number, _ in enumerate(Module, 3))})
        AS given (id, reason, {", ".join(Module)})
    WHERE log.id = given.id
    """  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class DoneMessageWithUnansweredModules:
    """A message that is done, but that some module may have applied without an answer."""

    message: UnfinishedLogMessage
    pair: SwapMessageUprns
    is_final: bool
    """Whether it can no longer take effect where it has not."""

    @property
    def unsure_modules(self) -> Sequence[Module]:
        """The modules that may have applied it."""
        return self.message.reason.unsure


async def list_unconfirmed_ids(database: Database, silent: Set[Module], after: int, limit: int) -> list[int]:
    """Return the ids of messages, in their order, about which a module outside `silent` must be asked."""
    async with database.connection() as connection:
        return [row["id"] for row in await connection.fetch(_UNCONFIRMED, json.dumps(sorted(silent)), after, limit)]


async def load_unconfirmed_messages(database: Database, ids: Sequence[int]) -> list[DoneMessageWithUnansweredModules]:
    """Load those of the messages that some module may have applied without an answer."""
    async with database.connection() as connection:
        rows = await connection.fetch(_LOAD_UNCONFIRMED, ids)
    return [
        DoneMessageWithUnansweredModules(
            build_logged_message(row),
            SwapMessageUprns(row["id"], row["uprn_1"], row["uprn_2"] or row["uprn_1"]),
            row["is_final"],
        )
        for row in rows
    ]


async def write_answers_and_list_remaining_addresses(
    database: Database, updates: Sequence[MessageLogUpdate], reasons: Mapping[int, str | None]
) -> None:
    """Write the answers of the modules, and list the addresses that they keep, in one transaction.

    Args:
        reasons: For each message that changes, what remains to be asked; None where nothing does.
    """
    async with database.connection() as connection, connection.transaction():
        await acknowledgements.insert_or_merge_logical_deletes(connection, updates)
        acks = {each.id: each.acks for each in updates}
        applied = [["Y" if acks[id_].get(module) == "Y" else None for id_ in reasons] for module in Module]
        await connection.execute(_CONFIRM, list(reasons), list(reasons.values()), *applied)
