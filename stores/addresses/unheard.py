"""Messages that are done, though modules may have applied them without an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.addresses.queues import Pair
from domain.addresses.verdicts import Verdict
from infra.database import Database
from stores.addresses import groups, settling
from stores.addresses.groups import Message

_ACKS: Final = ", ".join(f"{module}_ack" for module in Module)
# While a later one is unfinished, a call of this one that is still on its way might yet take effect.
_PAGE: Final = f"""
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
    pair: Pair
    is_final: bool
    """Whether it will not take effect any more where it has not."""

    @property
    def modules(self) -> Sequence[Module]:
        """Those that may have applied it."""
        return self.message.reason.unsure


async def read_page(database: Database, silent: Set[Module], after: int, limit: int) -> list[Unheard]:
    """Messages, in order of their ids, about which a module must be asked that is not silent."""
    async with database.connection() as connection:
        rows = await connection.fetch(_PAGE, json.dumps(sorted(silent)), after, limit)
    return [
        Unheard(
            groups.message(row),
            Pair(row["id"], row["uprn_1"], row["uprn_2"] or row["uprn_1"]),
            row["is_final"],
        )
        for row in rows
    ]


async def write_answers(database: Database, verdicts: Sequence[Verdict], reasons: Mapping[int, str | None]) -> None:
    """Write what modules said, and list the addresses that they keep, in one transaction.

    Args:
        reasons: For each message that changes, what is left to ask about; None where nothing is.
    """
    async with database.connection() as connection, connection.transaction():
        await settling.note_kept(connection, verdicts)
        acks = {each.id: each.acks for each in verdicts}
        applied = [["Y" if acks[id_].get(module) == "Y" else None for id_ in reasons] for module in Module]
        await connection.execute(_HEARD, list(reasons), list(reasons.values()), *applied)
