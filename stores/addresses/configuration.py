"""The versions of what operators set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlmodel import col, select

from domain.addresses.config import Options
from infra.database import Database, Session
from stores.addresses.steering import By
from stores.shared import keyset
from stores.tables.addresses import AddressSetting


@dataclass(frozen=True, slots=True)
class Version:
    """What one version sets; 0 sets nothing."""

    version: int
    options: Options


UNSET: Final = Version(0, Options())
_LOCK: Final = text("LOCK TABLE addr_settings IN SHARE ROW EXCLUSIVE MODE")


async def newest(session: Session) -> Version:
    """The newest version."""
    statement = select(AddressSetting).order_by(col(AddressSetting.version).desc()).limit(1)
    return _version((await session.exec(statement)).one_or_none())


async def read_newest(database: Database) -> Version:
    """The newest version, in a transaction of its own."""
    async with database.session() as session:
        return await newest(session)


async def read(database: Database, version: int) -> Version:
    """One version, by its number."""
    async with database.session() as session:
        return _version(await session.get_one(AddressSetting, version))


async def list_page(session: Session, after: tuple[datetime, int] | None, limit: int) -> Sequence[AddressSetting]:
    """Versions, newest first, and one more if another page follows."""
    place = (AddressSetting.changed_at, AddressSetting.version)
    return (await session.exec(keyset.select_page(select(AddressSetting), place, after, limit))).all()


async def lock_versions(session: Session) -> None:
    """Let no other transaction add a version: two changes at a time would each keep what the other one replaced."""
    await session.execute(_LOCK)


async def add_version(session: Session, options: Options, by: By) -> Version:
    """Put a new version in force."""
    said = options.model_dump(mode="json", exclude_none=True)
    row = AddressSetting(options=said, who=by.who, reason=by.reason)  # type: ignore[call-arg] # by the database
    session.add(row)
    await session.flush()
    return Version(row.version or 0, options)


def _version(row: AddressSetting | None) -> Version:
    return UNSET if row is None else Version(row.version or 0, Options.model_validate(row.options))
