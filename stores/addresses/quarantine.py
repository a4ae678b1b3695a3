"""The quarantine: messages that could not be read, as they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import defer
from sqlmodel import col, func, select

from domain.addresses.messages import Topic
from infra.database import Database
from stores.shared import keyset
from stores.tables.addresses import QuarantinedMessage


@dataclass(frozen=True, slots=True)
class QuarantinedText:
    """A message in quarantine, with the beginning of its text."""

    message: QuarantinedMessage
    """Without `raw`, which may be long."""

    kept_bytes: int
    """How much of the text is kept."""

    raw: bytes
    """The first of these bytes."""


async def list_page(
    database: Database, topic: Topic | None, *, is_mended: bool, after: tuple[datetime, int] | None, limit: int
) -> Sequence[QuarantinedMessage]:
    """Messages that were mended, or those that were not, without their texts: newest first, one more than a page."""
    mended = col(QuarantinedMessage.mended_as)
    statement = (
        select(QuarantinedMessage)
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .where(mended.is_not(None) if is_mended else mended.is_(None))
    )
    if topic is not None:
        statement = statement.where(QuarantinedMessage.topic == topic)
    place = (QuarantinedMessage.created_at, QuarantinedMessage.id)
    async with database.session() as session:
        return (await session.exec(keyset.select_page(statement, place, after, limit))).all()


async def find_text(database: Database, quarantine_id: int, max_bytes: int) -> QuarantinedText | None:
    """A message, and the first bytes of its text."""
    raw = col(QuarantinedMessage.raw)
    statement = (
        select(QuarantinedMessage, func.octet_length(raw), func.substr(raw, 1, max_bytes))
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .where(QuarantinedMessage.id == quarantine_id)
    )
    async with database.session() as session:
        found = (await session.exec(statement)).one_or_none()
    return None if found is None else QuarantinedText(*found)
