"""Versions of the settings that operators changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlmodel import col, select

from domain.addresses.configuration import AddressOptions
from infra.database import Database, Session
from stores.addresses.actions import Actor
from stores.shared import keyset
from stores.tables.addresses import AddressSetting


@dataclass(frozen=True, slots=True)
class OptionsVersion:
    """One version of the options; 0 sets nothing."""

    version: int
    options: AddressOptions


NO_VERSION: Final = OptionsVersion(0, AddressOptions())
_LOCK: Final = text("LOCK TABLE addr_settings IN SHARE ROW EXCLUSIVE MODE")


async def select_newest(session: Session) -> OptionsVersion:
    statement = select(AddressSetting).order_by(col(AddressSetting.version).desc()).limit(1)
    return _build_version((await session.exec(statement)).one_or_none())


async def load_newest(database: Database) -> OptionsVersion:
    """Return the newest version, in a transaction of its own."""
    async with database.session() as session:
        return await select_newest(session)


async def load_version(database: Database, version: int) -> OptionsVersion:
    async with database.session() as session:
        return _build_version(await session.get_one(AddressSetting, version))


async def list_versions(session: Session, after: tuple[datetime, int] | None, limit: int) -> Sequence[AddressSetting]:
    """List versions, newest first, one more than a page."""
    place = (AddressSetting.changed_at, AddressSetting.version)
    return (await session.exec(keyset.select_page(select(AddressSetting), place, after, limit))).all()


async def lock_versions(session: Session) -> None:
    """Exclude other changes until the transaction ends: of two at a time, one would restore what the other replaced."""
    await session.execute(_LOCK)


async def add_version(session: Session, options: AddressOptions, actor: Actor) -> OptionsVersion:
    """Insert a new version, which is in force once the transaction commits."""
    values = options.model_dump(mode="json", exclude_none=True)
    row = AddressSetting(options=values, who=actor.who, reason=actor.reason)  # type: ignore[call-arg] # by the database
    session.add(row)
    await session.flush()
    return OptionsVersion(row.version or 0, options)


def _build_version(row: AddressSetting | None) -> OptionsVersion:
    return NO_VERSION if row is None else OptionsVersion(row.version or 0, AddressOptions.model_validate(row.options))
