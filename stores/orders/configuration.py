"""What is in force for a platform: its row, what its kind can do, and the newest configuration of both levels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from sqlalchemy import text
from sqlmodel import col, func, select

from domain.faults import Missing
from domain.orders import config, known_platforms
from domain.orders.access import Account
from domain.orders.capability import Capability
from domain.orders.config import DEFAULT_LEVEL, PlatformOptions, PlatformSettings, SettingOrigin
from infra.database import Database, Session
from stores.tables.orders import OrderPlatform, OrderSetting

_LOCK: Final = text("LOCK TABLE order_settings IN SHARE ROW EXCLUSIVE MODE")


@dataclass(frozen=True, slots=True)
class Version:
    """What one level sets, and since which version."""

    version: int
    options: PlatformOptions


UNSET = Version(0, PlatformOptions())


@dataclass(frozen=True, slots=True)
class Standing:
    """A platform as it is now."""

    row: OrderPlatform
    capability: Capability
    settings: PlatformSettings
    origins: Mapping[str, SettingOrigin]

    @property
    def account(self) -> Account:
        """The account at the platform."""
        return Account(self.row.platform, self.row.shop, self.row.base_url)

    @property
    def now(self) -> datetime:
        """The platform's time, as near as we know it; before its clock was seen, ours."""
        return datetime.now(UTC) + timedelta(seconds=self.row.skew_seconds or 0.0)

    def check(self) -> None:
        """Refuse a configuration that cannot work with this platform; raises Invalid."""
        has_begun = self.row.starts_at is not None
        config.check_settings(self.row.platform, self.settings, self.capability, self.now, has_begun=has_begun)


async def standing(session: Session, platform: str, *, lock: bool = False) -> Standing:
    """One platform; locked, nobody else claims or completes meanwhile.

    Raises:
        Missing: There is none under this number.
    """
    row = await session.get(OrderPlatform, platform, with_for_update=lock or None)
    if row is None:
        raise unknown(platform)
    levels = await newest(session, [DEFAULT_LEVEL, platform])
    return stand(row, levels.get(DEFAULT_LEVEL, UNSET), levels.get(platform, UNSET))


async def read_standing(database: Database, platform: str) -> Standing:
    """One platform as it is now.

    Raises:
        Missing: There is none under this number.
    """
    async with database.session() as session:
        return await standing(session, platform)


async def read_threads(database: Database) -> dict[str, int]:
    """How many slices of each platform are read at a time."""
    async with database.session() as session:
        rows = (await session.exec(select(OrderPlatform))).all()
        levels = await newest(session, [DEFAULT_LEVEL, *(row.platform for row in rows)])
    defaults = levels.get(DEFAULT_LEVEL, UNSET)
    return {row.platform: stand(row, defaults, levels.get(row.platform, UNSET)).settings.threads for row in rows}


def stand(row: OrderPlatform, defaults: Version, own: Version) -> Standing:
    """A platform under these two levels."""
    capability = capability_of(row)
    version = max(defaults.version, own.version)
    settings, origins = config.resolve_settings(version, defaults.options, own.options, capability)
    return Standing(row, capability, settings, origins)


async def newest(session: Session, levels: Sequence[str]) -> dict[str, Version]:
    """The newest version of each level that sets anything."""
    latest = (
        select(func.max(OrderSetting.version))
        .where(col(OrderSetting.platform).in_(levels))
        .group_by(col(OrderSetting.platform))
    )
    statement = select(OrderSetting).where(col(OrderSetting.version).in_(latest))
    rows = await session.exec(statement)
    return {row.platform: Version(row.version or 0, PlatformOptions.model_validate(row.options)) for row in rows}


async def lock_levels(session: Session) -> None:
    """Let no other transaction change a level: two changes, one of each level, could be right alone, wrong together."""
    await session.execute(_LOCK)


async def list_concerned(session: Session, level: str) -> list[OrderPlatform]:
    """The platforms that a change of a level changes: all of them, or the one whose own level it is.

    Raises:
        Missing: There is no platform under this number.
    """
    statement = select(OrderPlatform).order_by(col(OrderPlatform.platform))
    if level != DEFAULT_LEVEL:
        statement = statement.where(OrderPlatform.platform == level)
    rows = list(await session.exec(statement))
    if not rows and level != DEFAULT_LEVEL:
        raise unknown(level)
    return rows


async def add_version(session: Session, level: str, options: PlatformOptions) -> Version:
    """Put a new version of a level in force."""
    row = OrderSetting(platform=level, options=options.model_dump(exclude_none=True), changed_at=datetime.now(UTC))
    session.add(row)
    await session.flush()
    return Version(row.version or 0, options)


def capability_of(row: OrderPlatform) -> Capability:
    """What a platform can do: as its own record says, else as that of its kind."""
    return (
        known_platforms.KNOWN_PLATFORMS[row.kind] if row.capability is None else _declared(json.dumps(row.capability))
    )


@lru_cache(maxsize=256)
def _declared(text: str) -> Capability:
    """Reading a record tries all its paths, which takes longer than most that is done with it."""
    return Capability.model_validate_json(text)


def unknown(platform: str) -> Missing:
    """What is told of a number that names no platform."""
    return Missing("not_found", f"There is no platform {platform!r}.", "GET /v1/platforms lists those that there are.")
