"""What the log knows of addresses that modules have differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from domain.addresses.messages import Topic
from infra.database import Database

_MESSAGES: Final = """
    SELECT told.uprn, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log WHERE uprn_1 = told.uprn AND topic <> $2
            UNION ALL SELECT id FROM im_infi_addr_sync_log_his WHERE uprn_1 = told.uprn AND topic <> $2
        ) AS each
    ) AS last, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_1 = told.uprn AND (proc_flag IS NULL OR proc_flag <> 'Y')
            UNION ALL SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_2 = told.uprn AND (proc_flag IS NULL OR proc_flag <> 'Y')
        ) AS each
    ) AS open
    FROM unnest($1::bigint[]) WITH ORDINALITY AS told (uprn, place) ORDER BY place
    """


@dataclass(frozen=True, slots=True)
class Known:
    """What the log knows of a UPRN that modules have differently."""

    last: int | None
    """The newest createUpdate or delete of it: sent again, it mends it."""
    open: int | None
    """A message of it that is not done."""


async def find_messages(database: Database, uprns: Sequence[int]) -> list[Known]:
    """What the log knows of each of these UPRNs, in their order."""
    async with database.connection() as connection:
        rows = await connection.fetch(_MESSAGES, uprns, Topic.SWAP)
    return [Known(row["last"], row["open"]) for row in rows]
