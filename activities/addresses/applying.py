"""Applying: messages go to the modules that have not acknowledged them, and what these say is written at once.

The log is the checkpoint: a step that is taken again finds there what is done, and the modules know by its id what
they have applied, so that it may break off anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from clients.modules import ModuleFailure
from domain.addresses import sides
from domain.addresses.cycle import Applied, ApplyOrder
from domain.addresses.messages import Topic
from domain.addresses.operations import Lookup, Module, Operation, OperationResult
from domain.addresses.verdicts import Verdict, judge
from infra.database import Database
from infra.settings import AddressSettings
from stores.addresses import settling
from stores.addresses.groups import Message
from stores.addresses.groups import find_held as _held
from stores.addresses.groups import read_group as _messages

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
