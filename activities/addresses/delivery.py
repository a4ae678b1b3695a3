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
from domain.addresses.activity_models import AppliedMessageCounts, ApplyStepInput
from domain.addresses.messages import Topic
from domain.addresses.operations import LiveUprnsAndAppliedOps, Module, Operation, OperationResult
from domain.addresses.ordering import FailedLookup
from domain.addresses.results import MessageLogUpdate, combine_module_results
from infra import log
from infra.address_settings import AddressSettings
from infra.database import Database
from stores.addresses import acknowledgements, delivery
from stores.addresses.delivery import (
    BlockingMessage,
    DoneMessageWithUnansweredModules,
    UnfinishedLogMessage,
    find_blocker_of_each_blocked_message,
    load_unfinished_messages,
)

ResultsByMessage: TypeAlias = dict[int, dict[Module, OperationResult]]


class ModulesClientForSendingAndLookups(Protocol):
    """The calls to modules that delivery needs."""

    async def apply_operations(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """Return one result for each operation, whatever happens on the way."""
        ...

    async def look_up_operations(self, module: Module, operations: Sequence[Operation], /) -> LiveUprnsAndAppliedOps:
        """Return what the module has of these operations and their UPRNs.

        Raises:
            ModuleFailure: The module gave no usable answer.
        """
        ...


async def check_send_and_record_step(
    database: Database, settings: AddressSettings, modules: ModulesClientForSendingAndLookups, params: ApplyStepInput
) -> AppliedMessageCounts:
    """Apply a step, group by group; of a group with large messages, part by part."""
    total = AppliedMessageCounts()
    for group in params.step:
        for part in await delivery.split_into_parts_by_size(database, group):
            written = await _check_send_and_record_part(database, settings, modules, params, part)
            total = AppliedMessageCounts(
                done=total.done + written.done,
                failed=total.failed + written.failed,
                superseded=total.superseded + written.superseded,
            )
    return total


async def _check_send_and_record_part(
    database: Database,
    settings: AddressSettings,
    modules: ModulesClientForSendingAndLookups,
    params: ApplyStepInput,
    ids: Sequence[int],
) -> AppliedMessageCounts:
    messages = await load_unfinished_messages(database, params.cycle_id, ids)
    blocked = await find_blocker_of_each_blocked_message(database, settings, params, messages)
    sendable = [each for each in messages if each.operation.seq not in blocked]
    answers = await _check_swaps_and_send_messages(modules, sendable)
    updates = [combine_module_results(each.operation, each.reason, answers[each.operation.seq]) for each in sendable]
    updates += [
        _build_blocked_update(each, blocked[each.operation.seq]) for each in messages if each.operation.seq in blocked
    ]
    return await acknowledgements.write_results_and_count_ended_messages(database, settings, params, updates)


async def _check_swaps_and_send_messages(
    modules: ModulesClientForSendingAndLookups, messages: Sequence[UnfinishedLogMessage]
) -> ResultsByMessage:
    """Send messages, and return the results; swaps that no module has acknowledged are looked up first."""
    unsent_swaps = [
        each.operation for each in messages if each.topic is Topic.SWAP and len(each.waits_for) == len(Module)
    ]
    unsendable = await _look_up_swaps_that_must_not_be_sent(modules, unsent_swaps) if unsent_swaps else {}
    return unsendable | await _send_messages(
        modules, [each for each in messages if each.operation.seq not in unsendable]
    )


async def _look_up_swaps_that_must_not_be_sent(
    modules: ModulesClientForSendingAndLookups, swaps: Sequence[Operation]
) -> ResultsByMessage:
    """Return the swaps that must not be sent, with the reason by module."""

    async def look_up_or_describe_failure(module: Module) -> LiveUprnsAndAppliedOps | FailedLookup:
        try:
            return await modules.look_up_operations(module, swaps)
        except ModuleFailure as failure:
            return FailedLookup(str(failure), failure.is_paused)

    by_module = dict(zip(Module, await asyncio.gather(*map(look_up_or_describe_failure, Module)), strict=True))
    found = {each.seq: ordering.find_swap_obstacles(each, by_module) for each in swaps}
    return {seq: answers for seq, answers in found.items() if answers}


async def _send_messages(
    modules: ModulesClientForSendingAndLookups, messages: Sequence[UnfinishedLogMessage]
) -> ResultsByMessage:
    """Send messages to all modules at a time, and return their results."""
    answers: ResultsByMessage = {each.operation.seq: {} for each in messages}

    async def send_to_module_and_collect_results(module: Module) -> None:
        operations = [each.operation for each in messages if module in each.waits_for]
        if operations:
            for operation, result in zip(operations, await modules.apply_operations(module, operations), strict=True):
                answers[operation.seq][module] = result

    async with asyncio.TaskGroup() as group:
        for module in Module:
            group.create_task(send_to_module_and_collect_results(module))
    return answers


def _build_blocked_update(message: UnfinishedLogMessage, by: BlockingMessage) -> MessageLogUpdate:
    return MessageLogUpdate(message.operation.seq, reason=message.reason.with_blocking_message(by.id, by.paused))


LateResults: TypeAlias = dict[int, OperationResult | None]
"""The results of a module by message: None for one that has not taken effect there."""

UNCONFIRMED_PAGE: Final = 500


async def confirm_unconfirmed_messages(database: Database, modules: ModulesClientForSendingAndLookups) -> None:
    """Ask the modules that may have applied done messages, and list the addresses that they keep because of them."""
    silent: set[Module] = set()
    last, page = 0, UNCONFIRMED_PAGE
    while page == UNCONFIRMED_PAGE:
        ids = await delivery.list_unconfirmed_ids(database, silent, last, UNCONFIRMED_PAGE)
        for part in await delivery.split_into_parts_by_size(database, ids):
            by_id = {each.pair.id: each for each in await delivery.load_unconfirmed_messages(database, part)}
            for group in ordering.group_swaps_without_shared_uprns(each.pair for each in by_id.values()):
                silent |= await _repeat_applied_operations_and_write_confirmations(
                    database, modules, [by_id[id_] for id_ in group], silent
                )
        last, page = max(ids, default=0), len(ids)


async def _repeat_applied_operations_and_write_confirmations(
    database: Database,
    modules: ModulesClientForSendingAndLookups,
    messages: Sequence[DoneMessageWithUnansweredModules],
    silent: Set[Module],
) -> Set[Module]:
    """Ask the modules that are not silent, write their answers, and return those that gave none."""
    answers = await asyncio.gather(
        *(
            _look_up_and_repeat_applied_operations(modules, module, messages)
            for module in Module
            if module not in silent
        )
    )
    answers_by_module = dict(zip((module for module in Module if module not in silent), answers, strict=True))
    reasons: dict[int, str | None] = {}
    updates = []
    for each in messages:
        seq, reason = each.message.operation.seq, each.message.reason
        late_results = {
            module: answer for module in each.unsure_modules if (answer := answers_by_module.get(module, {}).get(seq))
        }
        updates.append(combine_module_results(each.message.operation, reason, late_results))
        left = [
            module
            for module in each.unsure_modules
            if not _is_confirmed_by_answers_of_module(each, answers_by_module.get(module, {}))
        ]
        if left != reason.unsure:
            written = reason.model_copy(update={"unsure": left}).to_json()
            reasons[seq] = None if written == "{}" else written
    if reasons:
        await delivery.write_answers_and_list_remaining_addresses(database, updates, reasons)
    return {
        module for module, said in answers_by_module.items() if _left_any_message_unanswered(module, messages, said)
    }


async def _look_up_and_repeat_applied_operations(
    modules: ModulesClientForSendingAndLookups, module: Module, messages: Sequence[DoneMessageWithUnansweredModules]
) -> LateResults:
    """Return the results of the operations that the module has applied.

    An operation that it has not applied is not sent: only an applied one can be repeated without effect.
    """
    operations = [each.message.operation for each in messages if module in each.unsure_modules]
    if not operations:
        return {}
    try:
        known = (await modules.look_up_operations(module, operations)).applied
    except ModuleFailure:
        # The client has logged why.
        return {}
    applied = [each for each in operations if each.op_id in known]
    answers: LateResults = {each.seq: None for each in operations}
    if applied:
        results = await modules.apply_operations(module, applied)
        answers |= {each.seq: result for each, result in zip(applied, results, strict=True)}
    return answers


def _is_confirmed_by_answers_of_module(message: DoneMessageWithUnansweredModules, answers: LateResults) -> bool:
    seq = message.message.operation.seq
    if seq not in answers:
        return False
    answer = answers[seq]
    return message.is_final if answer is None else answer.is_acknowledged


def _left_any_message_unanswered(
    module: Module, messages: Sequence[DoneMessageWithUnansweredModules], answers: LateResults
) -> bool:
    """Whether a module was asked and left something unanswered, so that it is not asked again in this run."""
    if not answers:
        return any(module in each.unsure_modules for each in messages)
    return any(answer is not None and not answer.is_acknowledged for answer in answers.values())


GIVEN_UP_PAGE: Final = 500


async def allow_retry_of_swaps_no_longer_missing_side(
    database: Database, retries: int, modules: ModulesClientForSendingAndLookups
) -> int:
    """Give one more try to each given-up swap whose waiting modules have both sides, and return their number.

    Nothing changes while a module cannot be asked: it may be the one that misses a side.
    """
    total, last, page = 0, 0, GIVEN_UP_PAGE
    while page == GIVEN_UP_PAGE:
        swaps = await delivery.list_swaps_out_of_retries_for_missing_side(database, retries, last, GIVEN_UP_PAGE)
        last, page = max((each.operation.seq for each in swaps), default=0), len(swaps)
        if not swaps or (lookups := await _look_up_in_all_modules(modules, swaps)) is None:
            break
        if complete := [each.operation.seq for each in swaps if _waiting_modules_have_both_sides(each, lookups)]:
            revived = await delivery.retry_abandoned_swaps_once(database, retries, complete)
            log.get(__name__).info("address_swaps_revived", messages=revived)
            total += len(revived)
    return total


async def _look_up_in_all_modules(
    modules: ModulesClientForSendingAndLookups, swaps: Sequence[UnfinishedLogMessage]
) -> Mapping[Module, LiveUprnsAndAppliedOps] | None:
    operations = [each.operation for each in swaps]
    try:
        lookups = await asyncio.gather(*(modules.look_up_operations(module, operations) for module in Module))
    except ModuleFailure:
        # The client has logged why.
        return None
    return dict(zip(Module, lookups, strict=True))


def _waiting_modules_have_both_sides(
    swap: UnfinishedLogMessage, lookups: Mapping[Module, LiveUprnsAndAppliedOps]
) -> bool:
    """Whether each module that has not acknowledged it has both sides."""
    return all(
        uprn in lookups[module].live for module in swap.waits_for for uprn in swap.as_message_about_to_be_sent.uprns
    )
