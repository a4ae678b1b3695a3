"""The payload keys that were ever used to encrypt, so that a process without one of them does not start.

Without this a run whose key was lost would only show on the workers, as a workflow task that fails again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select

from domain.faults import Invalid
from infra import payloads
from infra.database import Database
from infra.settings import Settings
from stores.tables.shared import PayloadKeyUse

_NOTE_USE = "INSERT INTO payload_keys (key_id) VALUES ($1) ON CONFLICT DO NOTHING"


@dataclass(frozen=True, slots=True)
class UsedPayloadKey:
    """A key that payloads were encrypted with."""

    key_id: str
    first_used_at: datetime


async def require_all_used_payload_keys(database: Database, settings: Settings) -> None:
    """Require every key that payloads were ever encrypted with.

    Raises:
        Invalid: A key is missing; the sentence has its id and what to do.
    """
    codec = payloads.build_codec(settings)
    held = codec.key_ids if codec else []
    accepted = {*held, *settings.secrets.payloads_given_up}
    for used in await list_used_payload_keys(database):
        if used.key_id not in accepted:
            raise Invalid(
                "payload_key_missing",
                f"Since {used.first_used_at:%Y-%m-%d} Temporal holds data that was encrypted with the key "
                f"{used.key_id}, and {payloads.KEYS_SETTING} does not have it.",
                "Put it back at the end of the list. Only where nothing that it encrypted is needed any more, "
                "name its id in HAULAGE_SECRETS__PAYLOADS_GIVEN_UP.",
            )


async def record_payload_key_use(database: Database, settings: Settings) -> None:
    """Note the key that this process encrypts with from now on, if there is one."""
    codec = payloads.build_codec(settings)
    if codec is None or not codec.encrypts:
        return
    async with database.connection() as connection:
        await connection.execute(_NOTE_USE, codec.key_ids[0])


async def list_used_payload_keys(database: Database) -> Sequence[UsedPayloadKey]:
    """Return the keys that were used, the oldest first."""
    async with database.session() as session:
        rows = await session.exec(select(PayloadKeyUse).order_by(col(PayloadKeyUse.first_used_at)))
        return [UsedPayloadKey(row.key_id, row.first_used_at) for row in rows]
