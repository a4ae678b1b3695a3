"""Hearing: what messages left in modules that applied them unheard, though nobody waits for their answers any more.

A message that a later one made needless, or that somebody skipped, is done. But a call of it that got no answer may
have taken effect, and the module may keep an address logically deleted because of it. Until the module has said so, the
message stays in the log, and is asked about at the end of each cycle, and whenever there is nothing else to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from activities.addresses.applying import Calls
from clients.modules import ModuleFailure
from domain.addresses import queues
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, OperationResult
from domain.addresses.queues import Pair
from domain.addresses.verdicts import judge
from infra.database import Database
from stores.addresses import groups, settling
from stores.addresses.groups import Message

Told: TypeAlias = dict[int, OperationResult | None]
"""What a module says of messages: None of one that has not taken effect there."""

PAGE: Final = 500

_ACKS: Final = ", ".join(f"{module}_ack" for module in Module)
# While a later one is unfinished, a call of this one that is still on its way might yet take effect.
_UNHEARD: Final = f"""
    SELECT id, topic, uprn_1, uprn_2, payload::text, {_ACKS}, wait_reason::text, NOT EXISTS (
        SELECT 1 FROM im_infi_addr_sync_log AS later
        WHERE later.uprn_1 = log.uprn_1 AND later.id > log.id AND later.proc_flag IN ('P', 'N')
          AND (later.topic = '{Topic.SWAP}') = (log.topic = '{Topic.SWAP}')
    ) AS is_final
    FROM im_infi_addr_sync_log AS log
    WHERE proc_flag = 'Y' AND wait_reason ? 'unsure' AND NOT wait_reason -> 'unsure' <@ $1::text::jsonb AND id > $2
    ORDER BY id LIMIT $3
    """  # noqa: S608 - constants of ours
_ACK: Final = """
    {0}_ack = coalesce(told.{0}, log.{0}_ack),
    {0}_ack_date = CASE WHEN told.{0} IS NULL THEN log.{0}_ack_date ELSE now() END,
    {0}_stack_trace = CASE WHEN told.{0} IS NULL THEN log.{0}_stack_trace END
    """
_HEARD: Final = f"""
    UPDATE im_infi_addr_sync_log AS log SET {", ".join(map(_ACK.format, Module))}, wait_reason = told.reason::jsonb
    FROM unnest($1::bigint[], $2::text[], {", ".join(f"${number}::text[]" for number, _ in enumerate(Module, 3))})
        AS told (id, reason, {", ".join(Module)})
    WHERE log.id = told.id
    """  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Unheard:
    """A message that is done, though modules may have applied it unheard."""

    message: Message
    is_final: bool
    """Whether it will not take effect any more where it has not."""

    @property
    def modules(self) -> Sequence[Module]:
        """Those that may have applied it."""
        return self.message.reason.unsure


async def hear(database: Database, modules: Calls) -> None:
    """Ask the modules that may have applied what is done, and list what they keep because of it."""
    silent: set[Module] = set()
    last, page = 0, PAGE
    while page == PAGE:
        async with database.connection() as connection:
            rows = await connection.fetch(_UNHEARD, json.dumps(sorted(silent)), last, PAGE)
        by_id = {row["id"]: Unheard(groups.message(row), row["is_final"]) for row in rows}
        for group in queues.groups(Pair(row["id"], row["uprn_1"], row["uprn_2"] or row["uprn_1"]) for row in rows):
            silent |= await _hear(database, modules, [by_id[id_] for id_ in group], silent)
        last, page = max(by_id, default=0), len(rows)


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
        async with database.connection() as connection, connection.transaction():
            await settling.note_kept(connection, verdicts)
            acks = {each.id: each.acks for each in verdicts}
            applied = [["Y" if acks[id_].get(module) == "Y" else None for id_ in reasons] for module in Module]
            await connection.execute(_HEARD, list(reasons), list(reasons.values()), *applied)
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


def _is_known(unheard: Unheard, told: Told) -> bool:
    seq = unheard.message.operation.seq
    if seq not in told:
        return False
    answer = told[seq]
    return unheard.is_final if answer is None else answer.settled


def _is_silent(module: Module, asked: Sequence[Unheard], told: Told) -> bool:
    """Whether it was asked and gave no answer to something: who waits for it to fail again has better to do."""
    if not told:
        return any(module in each.modules for each in asked)
    return any(answer is not None and not answer.settled for answer in told.values())
