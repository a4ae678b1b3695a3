"""Logical deletes: addresses that a module keeps while it has orders in flight, and what becomes of them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from domain.addresses.operations import Module
from sims.oss.server import Oss
from tests.support.addresses import Addresses
from tests.support.waiting import eventually
from tests.worlds.addresses.publications import Names

KEEPER = Module.OD


def begin_orders(names: Names, oss: Oss) -> None:
    """Let the keeper have orders in flight of all addresses of a world, if that is one with orders."""
    if names.world.has_orders:
        oss.modules[KEEPER].begin_orders(names.address_ids)


async def end_orders(names: Names, oss: Oss, addresses: Addresses) -> None:
    """Let the keeper have none, and have the product check all addresses until it knows."""
    if not names.world.has_orders:
        return
    oss.modules[KEEPER].end_orders(names.address_ids)

    async def is_checked() -> bool:
        listed = await list_deletes(names, addresses)
        if all(each["removable_at"] for each in listed.values()):
            return not listed or names.world.options["auto_purge"] == "no"
        assert (await addresses.ask("POST", "logical-deletes:check")).status == 202
        return False

    await eventually(is_checked)


async def list_deletes(names: Names, addresses: Addresses) -> Mapping[int, Any]:
    """Return what the product lists of a world, by the ids of the addresses."""
    replies = await asyncio.gather(
        *(
            addresses.ask("GET", "logical-deletes", params={"address_id": str(address_id)})
            for address_id in names.address_ids
        )
    )
    return {each["address_id"]: each for reply in replies for each in reply.body["items"]}


def list_kept(names: Names, oss: Oss) -> frozenset[int]:
    """List the addresses of a world that a module has logically deleted."""
    ids = set(names.address_ids)
    states = [state for module in oss.modules.values() for state in module.states()]
    return frozenset(state.address_id for state in states if state.uprn is None and state.address_id in ids)
