"""The secrets that sign a project's webhooks: made when first needed, kept sealed, rotated with an overlap."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import ColumnElement, update
from sqlmodel import col, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from domain.faults import Conflict
from domain.sealed import SealedText
from domain.webhooks import deliveries
from infra.database import Database
from infra.sealing import Sealer
from stores.tables.projects import Project
from stores.tables.webhooks import WebhookSecret

LIVE_MAX = 5
"""Each live secret adds a signature to the header of every attempt."""


@dataclass(frozen=True)
class Minted:
    """A secret just made, in clear this once."""

    row: WebhookSecret
    text: str = field(repr=False)


async def texts(database: Database, sealer: Sealer, project_id: str) -> list[str]:
    """The secrets to sign with now, newest first; a project that has none gets its first."""
    async with database.session() as session:
        rows = await live(session, project_id)
        if not rows:
            await _lock(session, project_id)
            rows = await live(session, project_id) or [(await _mint(session, sealer, project_id)).row]
    return [sealer.open(SealedText(token=row.sealed)) for row in rows]


async def live(session: AsyncSession, project_id: str) -> Sequence[WebhookSecret]:
    """A project's secrets that still sign, newest first."""
    statement = select(WebhookSecret).where(WebhookSecret.project_id == project_id, _signs())
    return (await session.exec(statement.order_by(col(WebhookSecret.secret_id).desc()))).all()


async def rotate(session: AsyncSession, sealer: Sealer, project_id: str, overlap: timedelta) -> Minted:
    """Make a new secret; those before it sign no longer than the overlap.

    Raises:
        Conflict: So many overlap already that the header would grow too long.
    """
    await _lock(session, project_id)
    if overlap and len(await live(session, project_id)) >= LIVE_MAX:
        raise Conflict(
            "too_many_secrets",
            f"This project has {LIVE_MAX} secrets that sign at the same time.",
            "Wait until one expires, or end them all at once with `overlap_seconds` 0.",
        )
    ends = func.now() + overlap
    await session.exec(
        update(WebhookSecret)
        .where(col(WebhookSecret.project_id) == project_id, _signs())
        .values(expires_at=func.least(func.coalesce(WebhookSecret.expires_at, ends), ends))
    )
    return await _mint(session, sealer, project_id)


async def _mint(session: AsyncSession, sealer: Sealer, project_id: str) -> Minted:
    text = deliveries.secret_text(secrets.token_bytes(deliveries.SECRET_BYTES))
    now = (await session.exec(select(func.now()))).one()
    row = WebhookSecret(project_id=project_id, sealed=sealer.seal(text).token, last4=text[-4:], created_at=now)
    session.add(row)
    await session.flush()
    return Minted(row, text)


async def _lock(session: AsyncSession, project_id: str) -> None:
    """So that two who find no secret make one, and two who rotate do it in turn."""
    await session.get_one(Project, project_id, with_for_update=True)


def _signs() -> ColumnElement[bool]:
    return or_(col(WebhookSecret.expires_at).is_(None), col(WebhookSecret.expires_at) > func.now())
