"""Hearing: what messages left in modules that applied them unheard, though nobody waits for their answers any more.

A message that a later one made needless, or that somebody skipped, is done. But a call of it that got no answer may
have taken effect, and the module may keep an address logically deleted because of it. Until the module has said so, the
message stays in the log, and is asked about at the end of each cycle, and whenever there is nothing else to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from typing import Final, TypeAlias

from activities.addresses.applying import Calls
from clients.modules import ModuleFailure
from domain.addresses import queues
from domain.addresses.operations import Module, OperationResult
from domain.addresses.verdicts import judge
from infra.database import Database
from stores.addresses import unheard
from stores.addresses.unheard import Unheard

Told: TypeAlias = dict[int, OperationResult | None]
"""What a module says of messages: None of one that has not taken effect there."""

PAGE: Final = 500


async def hear(database: Database, modules: Calls) -> None:
    """Ask the modules that may have applied what is done, and list what they keep because of it."""
    silent: set[Module] = set()
    last, page = 0, PAGE
    while page == PAGE:
        by_id = {each.pair.id: each for each in await unheard.read_page(database, silent, last, PAGE)}
        for group in queues.groups(each.pair for each in by_id.values()):
            silent |= await _hear(database, modules, [by_id[id_] for id_ in group], silent)
        last, page = max(by_id, default=0), len(by_id)


async def _hear(database: Database, modules: Calls, asked: Sequence[Unheard], silent: Set[Module]) -> Set[Module]:
    """Ask all that are not silent, write down what they say, and return those that say nothing."""
    answers = await asyncio.gather(*(_ask(modules, module, asked) for module in Module if module not in silent))
    told = dict(zip((module for module in Module if module not in silent), answers, strict=True))
    reasons: dict[int, str | None] = {}
    verdicts = []
    for each in asked:
        seq, reason = each.message.operation.seq, each.message.reason
        heard = {module: answer for module in each.modules if (answer := told.get(module, {}).get(seq))}
        verdicts.append(judge(each.message.operation, reason, heard))
        left = [module for module in each.modules if not _is_known(each, told.get(module, {}))]
        if left != reason.unsure:
            written = reason.model_copy(update={"unsure": left}).written
            reasons[seq] = None if written == "{}" else written
    if reasons:
        await unheard.write_answers(database, verdicts, reasons)
    return {module for module, said in told.items() if _is_silent(module, asked, said)}


async def _ask(modules: Calls, module: Module, asked: Sequence[Unheard]) -> Told:
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
    told: Told = {each.seq: None for each in operations}
    if applied:
        results = await modules.apply(module, applied)
        told |= {each.seq: result for each, result in zip(applied, results, strict=True)}
    return told


def _is_known(asked: Unheard, told: Told) -> bool:
    seq = asked.message.operation.seq
    if seq not in told:
        return False
    answer = told[seq]
    return asked.is_final if answer is None else answer.settled


def _is_silent(module: Module, asked: Sequence[Unheard], told: Told) -> bool:
    """Whether it was asked and gave no answer to something: who waits for it to fail again has better to do."""
    if not told:
        return any(module in each.modules for each in asked)
    return any(answer is not None and not answer.settled for answer in told.values())
