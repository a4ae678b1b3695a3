"""Applying: messages go to the modules that have not acknowledged them, and what these say is written at once.

The log is the checkpoint: a step that is taken again finds there what is done, and the modules know by its id what
they have applied, so that it may break off anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import asyncpg
import msgspec

from clients.modules import ModuleFailure
from domain.addresses import messages, sides, waiting
from domain.addresses.cycle import Applied, ApplyOrder, Phase
from domain.addresses.messages import CreateUpdate, Delete, Swap, Topic
from domain.addresses.operations import Kind, Lookup, Module, Operation, OperationResult, message_id
from domain.addresses.verdicts import Verdict, judge
from domain.addresses.waiting import Asking, Neighbour, Reason
from infra.database import Database
from infra.settings import AddressSettings
from stores.addresses import settling
from stores.addresses.loading import OWNED, TOUCHED

Row: TypeAlias = "asyncpg.Record"
Answers: TypeAlias = dict[int, dict[Module, OperationResult]]


class Calls(Protocol):
    """Who speaks to the modules."""

    async def apply(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """One result for each operation, whatever happens on the way."""
        ...

    async def lookup(self, module: Module, operations: Sequence[Operation], /) -> Lookup:
        """What the module has of these operations and their UPRNs.

        Raises:
            ModuleFailure: The module does not tell.
        """
        ...


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


async def apply(database: Database, settings: AddressSettings, modules: Calls, order: ApplyOrder) -> Applied:
    """Apply a step, group by group."""
    total = Applied()
    for group in order.step:
        asked = await _messages(database, order.cycle_id, group)
        held = await _held(database, settings, order, asked)
        sendable = [each for each in asked if each.operation.seq not in held]
        answers = await _answers(modules, sendable)
        verdicts = [judge(each.operation, each.reason, answers[each.operation.seq]) for each in sendable]
        verdicts += [_queued(each, held[each.operation.seq]) for each in asked if each.operation.seq in held]
        settled = await settling.settle(database, settings, order, verdicts)
        total = Applied(
            done=total.done + settled.done,
            failed=total.failed + settled.failed,
            superseded=total.superseded + settled.superseded,
        )
    return total


async def _messages(database: Database, cycle_id: str, ids: Sequence[int]) -> list[Message]:
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


async def _held(
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


async def _answers(modules: Calls, asked: Sequence[Message]) -> Answers:
    """What the modules say; of swaps that no module has acknowledged, they are asked first whether they can be."""
    unbegun = [each.operation for each in asked if each.topic is Topic.SWAP and len(each.waits_for) == len(Module)]
    hindered = await _hindered(modules, unbegun) if unbegun else {}
    return hindered | await _sent(modules, [each for each in asked if each.operation.seq not in hindered])


async def _hindered(modules: Calls, swaps: Sequence[Operation]) -> Answers:
    """Swaps that must not be sent, and what the modules say instead."""

    async def told(module: Module) -> Lookup | str:
        try:
            return await modules.lookup(module, swaps)
        except ModuleFailure as failure:
            return str(failure)

    by_module = dict(zip(Module, await asyncio.gather(*map(told, Module)), strict=True))
    found = {each.seq: sides.hindrances(each, by_module) for each in swaps}
    return {seq: answers for seq, answers in found.items() if answers}


async def _sent(modules: Calls, asked: Sequence[Message]) -> Answers:
    """What the modules say, all four at a time."""
    answers: Answers = {each.operation.seq: {} for each in asked}

    async def ask(module: Module) -> None:
        operations = [each.operation for each in asked if module in each.waits_for]
        if operations:
            for operation, result in zip(operations, await modules.apply(module, operations), strict=True):
                answers[operation.seq][module] = result

    async with asyncio.TaskGroup() as group:
        for module in Module:
            group.create_task(ask(module))
    return answers


def _queued(message: Message, behind: int) -> Verdict:
    return Verdict(message.operation.seq, reason=message.reason.queued(behind))
