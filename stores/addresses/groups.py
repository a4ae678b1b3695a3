"""The messages of a step of a cycle, and which of them must wait behind others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec

from domain.addresses import messages, waiting
from domain.addresses.cycle import ApplyOrder, Phase
from domain.addresses.messages import CreateUpdate, Delete, Swap, Topic
from domain.addresses.operations import Kind, Module, Operation, message_id
from domain.addresses.waiting import Asking, Neighbour, Reason
from infra.database import Database
from infra.settings import AddressSettings
from stores.addresses.loading import OWNED, TOUCHED

Row: TypeAlias = "asyncpg.Record"
_ACKS: Final = [(module, f"{module}_ack") for module in Module]
_READ: Final = f"""
    SELECT id, topic, payload::text, ed_ack, im_ack, wfm_ack, od_ack, wait_reason::text
    FROM im_infi_addr_sync_log WHERE id = ANY($1::bigint[]) AND cycle_id = $2 AND {OWNED} ORDER BY id
    """  # noqa: S608 - constants of ours
_BESIDE_SWAPS: Final = f"""
    SELECT id, topic, uprn_1, uprn_2, {OWNED} OR retry_times < $3 AS due, {TOUCHED} AS touched
    FROM im_infi_addr_sync_log
    WHERE proc_flag IN ('P', 'N') AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
      AND (topic <> '{Topic.SWAP}' OR id < $2 OR {TOUCHED})
    """  # noqa: S608 - constants of ours
_BESIDE_WRITES: Final = f"""
    SELECT id, topic, uprn_1, uprn_2, true AS due, true AS touched FROM im_infi_addr_sync_log
    WHERE proc_flag IN ('P', 'N') AND topic = '{Topic.SWAP}' AND {TOUCHED}
      AND (uprn_1 = ANY($1::bigint[]) OR uprn_2 = ANY($1::bigint[]))
    """  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the log has it."""

    operation: Operation
    topic: Topic
    waits_for: list[Module]
    """Modules that have not acknowledged it."""
    reason: Reason

    @property
    def asking(self) -> Asking:
        """Whom it may have to queue behind."""
        uprn_2 = self.operation.uprn_2
        uprns = (self.operation.uprn,) if uprn_2 is None else (self.operation.uprn, uprn_2)
        return Asking(self.operation.seq, self.topic, uprns, self.is_touched)

    @property
    def is_touched(self) -> bool:
        """Whether a module has applied it, or may have."""
        return len(self.waits_for) < len(Module) or self.reason.is_mark


async def read_group(database: Database, cycle_id: str, ids: Sequence[int]) -> list[Message]:
    """What is left of a group; nothing, if its cycle is over."""
    async with database.connection() as connection:
        return [message(row) for row in await connection.fetch(_READ, ids, cycle_id)]


def message(row: Row) -> Message:
    """A message with its acknowledgements."""
    topic = Topic(row["topic"])
    said = messages.parse(topic, msgspec.json.decode(row["payload"]))
    return Message(
        operation=operation(row["id"], said),
        topic=topic,
        waits_for=[module for module, ack in _ACKS if row[ack] != "Y"],
        reason=_reason(row),
    )


def operation(log_id: int, said: messages.Message) -> Operation:
    """What the message of this row asks of a module."""
    op_id = message_id(log_id)
    match said:
        case Swap():
            return Operation(
                op_id=op_id,
                seq=log_id,
                kind=Kind.SWAP,
                uprn=said.uprn_1,
                uprn_2=said.uprn_2,
                delete_after=said.delete_after,
            )
        case CreateUpdate():
            return Operation(
                op_id=op_id,
                seq=log_id,
                kind=Kind.UPSERT,
                uprn=said.uprn_1,
                address_id=said.address_id,
                record=said.record,
            )
        case Delete():
            return Operation(op_id=op_id, seq=log_id, kind=Kind.DELETE, uprn=said.uprn_1)


def _reason(row: Row) -> Reason:
    written: Mapping[str, Any] | None = msgspec.json.decode(row["wait_reason"]) if row["wait_reason"] else None
    return Reason.read(written)


async def find_held(
    database: Database, settings: AddressSettings, order: ApplyOrder, asked: Sequence[Message]
) -> dict[int, int]:
    """Those that must not be sent yet, and behind whom they queue."""
    asking = [each.asking for each in asked]
    uprns = [uprn for each in asking for uprn in each.uprns]
    last = max((each.id for each in asking), default=0)
    async with database.connection() as connection:
        if order.phase in (Phase.SWAP, Phase.WAIT):
            rows = await connection.fetch(_BESIDE_SWAPS, uprns, last, settings.retries)
        else:
            rows = await connection.fetch(_BESIDE_WRITES, uprns)
    return waiting.held(asking, [_neighbour(row) for row in rows])


def _neighbour(row: Row) -> Neighbour:
    is_swap = row["topic"] == Topic.SWAP
    uprns = (row["uprn_1"], row["uprn_2"]) if is_swap else (row["uprn_1"],)
    return Neighbour(row["id"], is_swap, uprns, row["due"], row["touched"])
