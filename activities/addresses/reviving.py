"""Reviving: swaps that were given up for want of an address are tried again once modules have it, however it came.

A createUpdate that brings the address wakes them in its own transaction, see `settling`. An address may also come in
ways that the log does not tell: a call whose answer got lost, a module that was mended by hand, a backup that was put
back. So modules are asked whenever there is nothing else to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from activities.addresses.applying import Calls
from clients.modules import ModuleFailure
from domain.addresses.operations import Lookup, Module
from infra import log
from infra.database import Database
from stores.addresses import given_up_swaps
from stores.addresses.groups import Message

PAGE: Final = 500


async def revive(database: Database, retries: int, modules: Calls) -> int:
    """Give one more try to each given-up swap whose sides all modules have that wait for it; say how many those are.

    Nothing changes while a module cannot be asked: it may be the one that misses a side.
    """
    total, last, page = 0, 0, PAGE
    while page == PAGE:
        swaps = await given_up_swaps.read_page(database, retries, last, PAGE)
        last, page = max((each.operation.seq for each in swaps), default=0), len(swaps)
        if not swaps or (told := await _ask(modules, swaps)) is None:
            break
        if complete := [each.operation.seq for each in swaps if _is_complete(each, told)]:
            revived = await given_up_swaps.revive(database, retries, complete)
            log.get(__name__).info("address_swaps_revived", messages=revived)
            total += len(revived)
    return total


async def _ask(modules: Calls, swaps: Sequence[Message]) -> Mapping[Module, Lookup] | None:
    operations = [each.operation for each in swaps]
    try:
        told = await asyncio.gather(*(modules.lookup(module, operations) for module in Module))
    except ModuleFailure:
        # The client has logged why.
        return None
    return dict(zip(Module, told, strict=True))


def _is_complete(swap: Message, told: Mapping[Module, Lookup]) -> bool:
    """Whether each module that has not acknowledged it has both sides."""
    return all(uprn in told[module].live for module in swap.waits_for for uprn in swap.asking.uprns)
