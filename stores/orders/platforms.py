"""Platforms: the accounts whose orders are fetched, and what is in force for each: its capability and the newest
configuration of both levels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from pydantic import JsonValue
from sqlalchemy import ColumnElement, delete, text
from sqlmodel import col, func, select

from domain.faults import Missing
from domain.orders import config, known_platforms
from domain.orders.access import Account
from domain.orders.activity_models import PlatformAlarm
from domain.orders.capability import Capability
from domain.orders.config import DEFAULT_LEVEL, PlatformOptions, PlatformSettings, SettingOrigin
from domain.secrets import SealedText
from infra import log
from infra.database import Database, Session
from stores import keyset
from stores.tables.orders import OrderBackfill, OrderOptionsVersion, OrderPlatform, OrderSlice
from stores.tables.shared import Project

_LOCK: Final = text("LOCK TABLE order_settings IN SHARE ROW EXCLUSIVE MODE")


@dataclass(frozen=True, slots=True)
class PlatformOptionsVersion:
    """The options of one level, and their version."""

    version: int
    options: PlatformOptions


CHANNEL: Final = "order_platforms"
"""Notified of each platform that is set up and each level whose options change."""
KEPT_FIELDS: Final = frozenset({"platform", "project_id", "kind", "shop", "base_url", "created_at", "revision"})
"""What the row of a removed platform keeps: whose its orders are, and a revision that marks do not repeat."""
_IS_THERE: Final = col(OrderPlatform.removed_at).is_(None)
_HAS_ANY: Final = "SELECT EXISTS (SELECT FROM order_platforms WHERE removed_at IS NULL)"

NO_OPTIONS = PlatformOptionsVersion(0, PlatformOptions())


@dataclass(frozen=True, slots=True)
class PlatformWithSettingsInForce:
    """A platform with its settings in force."""

    row: OrderPlatform
    capability: Capability
    settings: PlatformSettings
    origins: Mapping[str, SettingOrigin]
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Those that were set for its project."""

    @property
    def account(self) -> Account:
        """The account at the platform."""
        return Account(self.row.platform, self.row.shop, self.row.base_url)

    @property
    def platform_now(self) -> datetime:
        """The platform's time, by its last known skew; by our clock before its first reading."""
        return datetime.now(UTC) + timedelta(seconds=self.row.skew_seconds or 0.0)

    def require_workable_settings(self) -> None:
        """Raise Invalid if the configuration cannot work with this platform."""
        has_begun = self.row.starts_at is not None
        config.require_workable_settings(
            self.row.platform, self.settings, self.capability, self.platform_now, has_begun=has_begun
        )


@dataclass(frozen=True, slots=True)
class DeclaredPlatformSetup:
    """What an operator declares of a platform."""

    project_id: str
    kind: str
    shop: str
    base_url: str
    capability: Mapping[str, JsonValue] | None
    notify: str | None
    """Sealed."""


async def load_platform_with_settings(
    session: Session, platform: str, *, lock: bool = False
) -> PlatformWithSettingsInForce:
    """Load a platform; locked, no other transaction claims or completes meanwhile.

    Raises:
        Missing: There is no such platform.
    """
    row = await find_platform(session, platform, lock=lock)
    if row is None:
        raise build_missing_platform_fault(platform)
    levels = await load_newest_options(session, [DEFAULT_LEVEL, platform])
    state = combine_platform_with_options(row, levels.get(DEFAULT_LEVEL, NO_OPTIONS), levels.get(platform, NO_OPTIONS))
    project = await session.get(Project, row.project_id)
    return replace(state, quotas=project.quotas if project else {})


async def load_platform_with_settings_in_own_transaction(
    database: Database, platform: str
) -> PlatformWithSettingsInForce:
    """Load a platform in a transaction of its own.

    Raises:
        Missing: There is no such platform.
    """
    async with database.session() as session:
        return await load_platform_with_settings(session, platform)


async def has_platforms(database: Database) -> bool:
    """Return whether any platform is set up; it costs a fraction of loading them."""
    async with database.connection() as connection:
        return bool(await connection.fetchval(_HAS_ANY))


async def load_threads_by_platform(database: Database) -> dict[str, int]:
    """Return the configured threads by platform, without platforms whose stored declaration is no longer valid."""
    if not await has_platforms(database):
        return {}
    async with database.session() as session:
        rows = (await session.exec(select(OrderPlatform).where(_IS_THERE))).all()
        levels = await load_newest_options(session, [DEFAULT_LEVEL, *(row.platform for row in rows)])
    defaults = levels.get(DEFAULT_LEVEL, NO_OPTIONS)
    threads = {}
    for row in rows:
        try:
            state = combine_platform_with_options(row, defaults, levels.get(row.platform, NO_OPTIONS))
        except (KeyError, ValueError) as error:
            # It was valid by the rules of an earlier version; the other platforms are served all the same.
            log.get(__name__).error("platform_declaration_invalid", platform=row.platform, error=str(error))
        else:
            threads[row.platform] = state.settings.threads
    return threads


def combine_platform_with_options(
    row: OrderPlatform, defaults: PlatformOptionsVersion, own: PlatformOptionsVersion
) -> PlatformWithSettingsInForce:
    """Build the state of a platform from both levels of its configuration."""
    capability = get_declared_or_built_in_capability(row)
    version = max(defaults.version, own.version)
    settings, origins = config.resolve_settings(version, defaults.options, own.options, capability)
    return PlatformWithSettingsInForce(row, capability, settings, origins)


async def find_platform(session: Session, platform: str, *, lock: bool = False) -> OrderPlatform | None:
    """Return a platform's row, or None; locked, no other transaction claims or completes meanwhile."""
    row = await find_platform_including_removed(session, platform, lock=lock)
    return None if row is None or row.removed_at is not None else row


async def find_platform_including_removed(
    session: Session, platform: str, *, lock: bool = False
) -> OrderPlatform | None:
    """Return a platform's row, also that of a removed one."""
    return await session.get(OrderPlatform, platform, with_for_update=lock or None)


async def require_platform(session: Session, platform: str, *, lock: bool = False) -> OrderPlatform:
    """Return a platform's row; locked, no other transaction claims or completes meanwhile.

    Raises:
        Missing: There is no such platform.
    """
    row = await find_platform(session, platform, lock=lock)
    if row is None:
        raise build_missing_platform_fault(platform)
    return row


async def list_platform_page_plus_one(
    session: Session, project_id: str | None, after: tuple[datetime, str] | None, limit: int
) -> Sequence[OrderPlatform]:
    """List platforms of a project or of all, newest first, and one more if another page follows."""
    statement = select(OrderPlatform).where(_IS_THERE)
    if project_id is not None:
        statement = statement.where(OrderPlatform.project_id == project_id)
    place = (OrderPlatform.created_at, OrderPlatform.platform)
    return (await session.exec(keyset.select_page_plus_one(statement, place, after, limit))).all()


def create_or_update_platform(
    session: Session, platform: str, setup: DeclaredPlatformSetup, before: OrderPlatform | None
) -> OrderPlatform:
    """Set up a platform, or change its row; with another address or capability, its zone is checked again."""
    row = before or OrderPlatform(
        platform=platform, created_at=datetime.now(UTC), kind="", shop="", base_url="", project_id=""
    )
    capability = None if setup.capability is None else dict(setup.capability)
    if (row.base_url, row.capability) != (setup.base_url, capability):
        row.zone_checked_at, row.skew_seconds, row.skew_alarm_by = None, None, None
    if row.removed_at is not None or _get_row_declaration_or_kind(
        row.kind, row.capability
    ) != _get_row_declaration_or_kind(setup.kind, capability):
        row.declared_revision = row.revision
    row.removed_at = None
    row.project_id, row.kind, row.shop = setup.project_id, setup.kind, setup.shop
    row.base_url, row.capability, row.notify = setup.base_url, capability, setup.notify
    session.add(row)
    return row


def _get_row_declaration_or_kind(kind: str, capability: Mapping[str, JsonValue] | None) -> object:
    """Return what is declared of the rows of a platform: where their ids, times and versions are."""
    return kind if capability is None else capability.get("rows")


async def count_platforms_of_project(session: Session, project_id: str) -> int:
    """Return how many platforms a project has."""
    counted = select(func.count()).select_from(OrderPlatform).where(OrderPlatform.project_id == project_id, _IS_THERE)
    return (await session.exec(counted)).one()


async def delete_platform_data_and_blank_row(session: Session, row: OrderPlatform) -> None:
    """Delete the slices, the backfills and the options of a platform; its row says whose its orders are."""
    for table in (OrderSlice, OrderBackfill, OrderOptionsVersion):
        await session.execute(delete(table).where(col(table.platform) == row.platform))
    fresh = OrderPlatform(
        platform=row.platform, created_at=row.created_at, kind="", shop="", base_url="", project_id=""
    )
    for name in OrderPlatform.model_fields.keys() - KEPT_FIELDS:
        setattr(row, name, getattr(fresh, name))
    row.removed_at = datetime.now(UTC)
    session.add(row)


async def list_platform_numbers(database: Database) -> list[str]:
    """List the names of all platforms."""
    async with database.session() as session:
        return list(
            await session.exec(select(OrderPlatform.platform).where(_IS_THERE).order_by(col(OrderPlatform.platform)))
        )


async def load_newest_options(session: Session, levels: Sequence[str]) -> dict[str, PlatformOptionsVersion]:
    """Load the newest version of each level that has options."""
    latest = (
        select(func.max(OrderOptionsVersion.version))
        .where(col(OrderOptionsVersion.platform).in_(levels))
        .group_by(col(OrderOptionsVersion.platform))
    )
    statement = select(OrderOptionsVersion).where(col(OrderOptionsVersion.version).in_(latest))
    rows = await session.exec(statement)
    return {
        row.platform: PlatformOptionsVersion(row.version or 0, PlatformOptions.model_validate(row.options))
        for row in rows
    }


async def lock_options_until_commit(session: Session) -> None:
    """Lock all levels: two changes, one of each level, could each be valid alone and invalid together.

    So could a change of a level and one of a platform. Where platforms are locked, too, they are locked afterwards.
    """
    await session.execute(_LOCK)


async def list_platforms_affected_by_level(session: Session, level: str) -> list[OrderPlatform]:
    """List the platforms that a change of a level affects: all of them, or the one whose own level it is.

    Those that have not begun are locked: none begins before the change is in force that was checked against it. All
    levels must be locked, so that none is set up or removed meanwhile.

    Raises:
        Missing: There is no such platform.
    """
    number = col(OrderPlatform.platform)
    affected: list[ColumnElement[bool]] = [_IS_THERE]
    if level != DEFAULT_LEVEL:
        affected.append(number == level)
    waits = select(number).where(*affected, col(OrderPlatform.starts_at).is_(None)).order_by(number).with_for_update()
    await session.exec(waits)
    rows = list(await session.exec(select(OrderPlatform).where(*affected).order_by(number)))
    if not rows and level != DEFAULT_LEVEL:
        raise build_missing_platform_fault(level)
    return rows


async def insert_options_version(session: Session, level: str, options: PlatformOptions) -> PlatformOptionsVersion:
    """Put a new version of a level in force."""
    row = OrderOptionsVersion(
        platform=level, options=options.model_dump(exclude_none=True), changed_at=datetime.now(UTC)
    )
    session.add(row)
    await session.flush()
    return PlatformOptionsVersion(row.version or 0, options)


def get_declared_or_built_in_capability(row: OrderPlatform) -> Capability:
    """Return what a platform can do: as declared for it, else as built in for its kind."""
    return (
        known_platforms.KNOWN_PLATFORMS[row.kind]
        if row.capability is None
        else _parse_capability(json.dumps(row.capability))
    )


@lru_cache(maxsize=256)
def _parse_capability(text: str) -> Capability:
    """Parse a declared capability, cached: validating it compiles all its paths."""
    return Capability.model_validate_json(text)


def build_missing_platform_fault(platform: str) -> Missing:
    """Build the fault for a name that no platform has."""
    return Missing("not_found", f"There is no platform {platform!r}.", "GET /v1/platforms lists those that there are.")


def build_alarm(row: OrderPlatform, notify: str, kind: str, message: str) -> PlatformAlarm:
    """Build an alarm for the administrator of a platform."""
    return PlatformAlarm(
        platform=row.platform, project_id=row.project_id, notify=SealedText(token=notify), type=kind, message=message
    )
