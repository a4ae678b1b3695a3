"""Swaps that were given up because modules lacked an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.addresses.waiting import Kind
from infra.database import Database
from stores.addresses import groups
from stores.addresses.groups import Message
from stores.tables.addresses import unfinished

_ACKS: Final = ", ".join(f"{module}_ack" for module in Module)
_LACKING: Final = f"""
    proc_flag = 'N' AND next_attempt_at IS NOT NULL AND retry_times >= $1 AND wait_reason ->> 'kind' = '{Kind.MISSING}'
    """
_PAGE: Final = f"""
    SELECT id, topic, payload::text, {_ACKS}, wait_reason::text FROM im_infi_addr_sync_log
    WHERE {unfinished(Topic.SWAP)} AND {_LACKING} AND id > $2 ORDER BY id LIMIT $3
    """  # noqa: S608 - constants of ours
_REVIVE: Final = f"""
    UPDATE im_infi_addr_sync_log SET next_attempt_at = now(), retry_times = $1 - 1
    WHERE id = ANY($2::bigint[]) AND {_LACKING} RETURNING id
    """  # noqa: S608 - constants of ours


async def read_page(database: Database, retries: int, after: int, limit: int) -> list[Message]:
    """Given-up swaps in order of their ids."""
    async with database.connection() as connection:
        return [groups.message(row) for row in await connection.fetch(_PAGE, retries, after, limit)]


async def revive(database: Database, retries: int, ids: Sequence[int]) -> list[int]:
    """Give each of these swaps one more try, unless it is not given up any more; the ids of those that got one."""
    async with database.connection() as connection:
        return [row["id"] for row in await connection.fetch(_REVIVE, retries, ids)]
