"""Platforms: the accounts whose orders are fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import JsonValue
from sqlmodel import select

from infra.database import Session
from stores.orders import configuration
from stores.shared import keyset
from stores.tables.orders import OrderPlatform


@dataclass(frozen=True, slots=True)
class PlatformSetup:
    """What an operator says of a platform."""

    project_id: str
    kind: str
    shop: str
    base_url: str
    capability: Mapping[str, JsonValue] | None
    notify: str | None
    """Sealed."""


async def find(session: Session, platform: str, *, lock: bool = False) -> OrderPlatform | None:
    """One platform; locked, no other transaction claims or completes meanwhile."""
    return await session.get(OrderPlatform, platform, with_for_update=lock or None)


async def require(session: Session, platform: str) -> OrderPlatform:
    """One platform.

    Raises:
        Missing: There is none under this number.
    """
    row = await find(session, platform)
    if row is None:
        raise configuration.unknown(platform)
    return row


async def list_page(
    session: Session, project_id: str | None, after: tuple[datetime, str] | None, limit: int
) -> Sequence[OrderPlatform]:
    """Platforms of a project or of all, newest first, and one more if another page follows."""
    statement = select(OrderPlatform)
    if project_id is not None:
        statement = statement.where(OrderPlatform.project_id == project_id)
    place = (OrderPlatform.created_at, OrderPlatform.platform)
    return (await session.exec(keyset.select_page(statement, place, after, limit))).all()


def put(session: Session, platform: str, setup: PlatformSetup, before: OrderPlatform | None) -> OrderPlatform:
    """Set up a platform, or change the row that it has; from another address, its zone is to be checked again."""
    row = before or OrderPlatform(
        platform=platform, created_at=datetime.now(UTC), kind="", shop="", base_url="", project_id=""
    )
    capability = None if setup.capability is None else dict(setup.capability)
    if (row.base_url, row.capability) != (setup.base_url, capability):
        row.zone_checked_at = None
    row.project_id, row.kind, row.shop = setup.project_id, setup.kind, setup.shop
    row.base_url, row.capability, row.notify = setup.base_url, capability, setup.notify
    session.add(row)
    return row
