"""Send messages to the modules, and write their answers at once.

The log is the checkpoint: a step that is repeated finds there what is done, and the modules know by its id what they
have applied. So an activity may be interrupted anywhere.

A message that was superseded or skipped is done. But a call of it that got no answer may have taken effect, and the
module may keep an address logically deleted because of it. Until the module has answered, the message stays in the log;
it is asked about at the end of each cycle, and whenever there is nothing else to do. So are swaps that were given up
because an address was missing: it may also arrive in a way that the log does not show, by a call whose answer got lost,
a module that was repaired by hand, or a restored backup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from typing import Final, Protocol, TypeAlias

from clients.modules import ModuleFailure
from domain.addresses import ordering
from domain.addresses.activity_models import ApplyStepInput, ApplyStepResult
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, ModuleLookup, Operation, OperationResult
from domain.addresses.results import MessageUpdate, combine_results
from infra import log
from infra.database import Database
from infra.settings import AddressSettings
from stores.addresses import acknowledgements, delivery
from stores.addresses.delivery import LoggedMessage, UnconfirmedMessage, find_blocked_messages, load_group

ResultsByMessage: TypeAlias = dict[int, dict[Module, OperationResult]]


class ModuleCalls(Protocol):
    """Who speaks to the modules."""

    async def apply(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """One result for each operation, whatever happens on the way."""
        ...

    async def lookup(self, module: Module, operations: Sequence[Operation], /) -> ModuleLookup:
        """What the module has of these operations and their UPRNs.

        Raises:
            ModuleFailure: The module does not tell.
        """
        ...


async def apply_step(
    database: Database, settings: AddressSettings, modules: ModuleCalls, order: ApplyStepInput
) -> ApplyStepResult:
    """Apply a step, group by group."""
    total = ApplyStepResult()
    for group in order.step:
        asked = await load_group(database, order.cycle_id, group)
        held = await find_blocked_messages(database, settings, order, asked)
        sendable = [each for each in asked if each.operation.seq not in held]
        answers = await _collect_results(modules, sendable)
        verdicts = [combine_results(each.operation, each.reason, answers[each.operation.seq]) for each in sendable]
        verdicts += [
            _build_queued_update(each, held[each.operation.seq]) for each in asked if each.operation.seq in held
        ]
        settled = await acknowledgements.write_results(database, settings, order, verdicts)
        total = ApplyStepResult(
            done=total.done + settled.done,
            failed=total.failed + settled.failed,
            superseded=total.superseded + settled.superseded,
        )
    return total


async def _collect_results(modules: ModuleCalls, asked: Sequence[LoggedMessage]) -> ResultsByMessage:
    """What the modules say; of swaps that no module has acknowledged, they are asked first whether they can be."""
    unbegun = [each.operation for each in asked if each.topic is Topic.SWAP and len(each.waits_for) == len(Module)]
    hindered = await _find_unsendable(modules, unbegun) if unbegun else {}
    return hindered | await _send_messages(modules, [each for each in asked if each.operation.seq not in hindered])


async def _find_unsendable(modules: ModuleCalls, swaps: Sequence[Operation]) -> ResultsByMessage:
    """Swaps that must not be sent, and what the modules say instead."""

    async def told(module: Module) -> ModuleLookup | str:
        try:
            return await modules.lookup(module, swaps)
        except ModuleFailure as failure:
            return str(failure)

    by_module = dict(zip(Module, await asyncio.gather(*map(told, Module)), strict=True))
    found = {each.seq: ordering.find_swap_obstacles(each, by_module) for each in swaps}
    return {seq: answers for seq, answers in found.items() if answers}


async def _send_messages(modules: ModuleCalls, asked: Sequence[LoggedMessage]) -> ResultsByMessage:
    """What the modules say, all four at a time."""
    answers: ResultsByMessage = {each.operation.seq: {} for each in asked}

    async def ask(module: Module) -> None:
        operations = [each.operation for each in asked if module in each.waits_for]
        if operations:
            for operation, result in zip(operations, await modules.apply(module, operations), strict=True):
                answers[operation.seq][module] = result

    async with asyncio.TaskGroup() as group:
        for module in Module:
            group.create_task(ask(module))
    return answers


def _build_queued_update(message: LoggedMessage, behind: int) -> MessageUpdate:
    return MessageUpdate(message.operation.seq, reason=message.reason.wait_behind(behind))


LateResults: TypeAlias = dict[int, OperationResult | None]
"""What a module says of messages: None of one that has not taken effect there."""

UNCONFIRMED_PAGE: Final = 500


async def confirm_unsure(database: Database, modules: ModuleCalls) -> None:
    """Ask the modules that may have applied what is done, and list what they keep because of it."""
    silent: set[Module] = set()
    last, page = 0, UNCONFIRMED_PAGE
    while page == UNCONFIRMED_PAGE:
        by_id = {
            each.pair.id: each for each in await delivery.list_unconfirmed(database, silent, last, UNCONFIRMED_PAGE)
        }
        for group in ordering.group_swaps(each.pair for each in by_id.values()):
            silent |= await _confirm_group(database, modules, [by_id[id_] for id_ in group], silent)
        last, page = max(by_id, default=0), len(by_id)


async def _confirm_group(
    database: Database, modules: ModuleCalls, asked: Sequence[UnconfirmedMessage], silent: Set[Module]
) -> Set[Module]:
    """Ask all that are not silent, write down what they say, and return those that say nothing."""
    answers = await asyncio.gather(*(_ask_module(modules, module, asked) for module in Module if module not in silent))
    told = dict(zip((module for module in Module if module not in silent), answers, strict=True))
    reasons: dict[int, str | None] = {}
    verdicts = []
    for each in asked:
        seq, reason = each.message.operation.seq, each.message.reason
        heard = {module: answer for module in each.modules if (answer := told.get(module, {}).get(seq))}
        verdicts.append(combine_results(each.message.operation, reason, heard))
        left = [module for module in each.modules if not _is_settled(each, told.get(module, {}))]
        if left != reason.unsure:
            written = reason.model_copy(update={"unsure": left}).to_json()
            reasons[seq] = None if written == "{}" else written
    if reasons:
        await delivery.write_confirmations(database, verdicts, reasons)
    return {module for module, said in told.items() if _is_silent(module, asked, said)}


async def _ask_module(modules: ModuleCalls, module: Module, asked: Sequence[UnconfirmedMessage]) -> LateResults:
    """What it has not applied is not sent again: only one that it has can be repeated without effect."""
    operations = [each.message.operation for each in asked if module in each.modules]
    if not operations:
        return {}
    try:
        known = (await modules.lookup(module, operations)).applied
    except ModuleFailure:
        # The client has logged why.
        return {}
    applied = [each for each in operations if each.op_id in known]
    told: LateResults = {each.seq: None for each in operations}
    if applied:
        results = await modules.apply(module, applied)
        told |= {each.seq: result for each, result in zip(applied, results, strict=True)}
    return told


def _is_settled(asked: UnconfirmedMessage, told: LateResults) -> bool:
    seq = asked.message.operation.seq
    if seq not in told:
        return False
    answer = told[seq]
    return asked.is_final if answer is None else answer.is_settled


def _is_silent(module: Module, asked: Sequence[UnconfirmedMessage], told: LateResults) -> bool:
    """Whether it was asked and gave no answer to something: who waits for it to fail again has better to do."""
    if not told:
        return any(module in each.modules for each in asked)
    return any(answer is not None and not answer.is_settled for answer in told.values())


GIVEN_UP_PAGE: Final = 500


async def revive_swaps(database: Database, retries: int, modules: ModuleCalls) -> int:
    """Give one more try to each given-up swap whose sides all modules have that wait for it; say how many those are.

    Nothing changes while a module cannot be asked: it may be the one that misses a side.
    """
    total, last, page = 0, 0, GIVEN_UP_PAGE
    while page == GIVEN_UP_PAGE:
        swaps = await delivery.list_given_up_swaps(database, retries, last, GIVEN_UP_PAGE)
        last, page = max((each.operation.seq for each in swaps), default=0), len(swaps)
        if not swaps or (told := await _look_up_everywhere(modules, swaps)) is None:
            break
        if complete := [each.operation.seq for each in swaps if _has_both_sides(each, told)]:
            revived = await delivery.retry_given_up_swaps(database, retries, complete)
            log.get(__name__).info("address_swaps_revived", messages=revived)
            total += len(revived)
    return total


async def _look_up_everywhere(
    modules: ModuleCalls, swaps: Sequence[LoggedMessage]
) -> Mapping[Module, ModuleLookup] | None:
    operations = [each.operation for each in swaps]
    try:
        told = await asyncio.gather(*(modules.lookup(module, operations) for module in Module))
    except ModuleFailure:
        # The client has logged why.
        return None
    return dict(zip(Module, told, strict=True))


def _has_both_sides(swap: LoggedMessage, told: Mapping[Module, ModuleLookup]) -> bool:
    """Whether each module that has not acknowledged it has both sides."""
    return all(uprn in told[module].live for module in swap.waits_for for uprn in swap.asking.uprns)
