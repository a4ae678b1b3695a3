"""Settings that operators change through the API, and their versions.

What operators leave out comes from the environment of each process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text
from sqlmodel import col, select

from domain.addresses.operations import BATCH_MAX, Module
from infra.database import Database, Session
from stores import keyset
from stores.addresses.actions import ActorWithReason
from stores.pauses import PauseRecord
from stores.tables.addresses import AddressOptionsVersion


class _SettingsThatMayBeNone(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def non_null_values(self) -> dict[str, Any]:
        """The values that are set, by name."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class AddressModuleOptions(_SettingsThatMayBeNone):
    """Settings of one module; None leaves the environment's value in force."""

    base_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s?#]+$",
        max_length=500,
        description="the root URL of the module's contract; the guard must allow it (HAULAGE_GUARD__ALLOW)",
    )
    credentials: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{0,64}$",
        description="NAME of a file NAME.json in HAULAGE_ADDRESSES__CREDENTIALS_FOLDER; empty: no token is sent",
    )
    timeout_seconds: float | None = Field(default=None, gt=0, le=3_600, description="the time limit of a call")
    concurrency: int | None = Field(default=None, ge=1, le=1_000, description="concurrent calls of each worker")
    batch: int | None = Field(
        default=None, ge=1, le=BATCH_MAX, description="operations per call; 1 for a module without batches"
    )
    retries: int | None = Field(
        default=None, ge=0, le=100, description="retries of a call without an answer or with an error"
    )
    retry_pause_seconds: float | None = Field(
        default=None, ge=0, le=10, description="pause before the first retry; doubles each time"
    )
    breaker_failures: int | None = Field(
        default=None, ge=1, le=1_000, description="consecutive failed calls after which the breaker opens"
    )
    breaker_seconds: float | None = Field(
        default=None, ge=0, le=3_600, description="how long the breaker stays open; then one call tests the module"
    )
    paused: bool | None = Field(default=None, description="whether it is not called; what needs it waits")


class AddressModulesOptions(_SettingsThatMayBeNone):
    """Settings of each module."""

    ed: AddressModuleOptions | None = None
    im: AddressModuleOptions | None = None
    wfm: AddressModuleOptions | None = None
    od: AddressModuleOptions | None = None

    def get_module_options(self, module: Module) -> AddressModuleOptions:
        found: AddressModuleOptions | None = getattr(self, module)
        return found or AddressModuleOptions()


class AddressOptions(_SettingsThatMayBeNone):
    """Settings of one version; None leaves the environment's value in force."""

    threshold: int | None = Field(default=None, ge=1, le=50_000, description="the most messages of a cycle")
    minimum_share: float | None = Field(
        default=None, ge=0, le=0.33, description="share of the threshold that is reserved for each topic"
    )
    pause_seconds: float | None = Field(
        default=None, ge=1, le=86_400, description="interval between cycles while there are no messages"
    )
    failed_cycles_max: int | None = Field(
        default=None, ge=1, le=1_000, description="failed cycles after which a message is given up"
    )
    retry_pause_seconds: float | None = Field(
        default=None, ge=0, le=86_400, description="pause before a message is retried; doubles each time"
    )
    group_messages_max: int | None = Field(default=None, ge=1, le=500, description="messages that are sent together")
    step_concurrency: int | None = Field(
        default=None, ge=1, le=100, description="steps that run in parallel, where order does not matter"
    )
    check_hours: float | None = Field(
        default=None, ge=0.01, le=8_760, description="interval between checks of logical deletes"
    )
    auto_purge: bool | None = Field(default=None, description="purge the addresses that a check finds removable")
    modules: AddressModulesOptions | None = None

    def get_module_options(self, module: Module) -> AddressModuleOptions:
        return (self.modules or AddressModulesOptions()).get_module_options(module)


def replace_sent_options_and_keep_others(before: AddressOptions, changes: AddressOptions) -> AddressOptions:
    """Return the options with some changed: a field that is not sent keeps its value, null removes it."""
    update = {name: getattr(changes, name) for name in changes.model_fields_set - {"modules"}}
    if "modules" in changes.model_fields_set:
        update["modules"] = changes.modules and _apply_module_changes(before, changes.modules)
    return before.model_copy(update=update)


def _apply_module_changes(before: AddressOptions, changes: AddressModulesOptions) -> AddressModulesOptions:
    update: dict[str, AddressModuleOptions | None] = {}
    for name in changes.model_fields_set:
        module = Module(name)
        sent: AddressModuleOptions | None = getattr(changes, name)
        if sent is None:
            update[name] = None
        else:
            fields = {each: getattr(sent, each) for each in sent.model_fields_set}
            update[name] = before.get_module_options(module).model_copy(update=fields)
    return (before.modules or AddressModulesOptions()).model_copy(update=update)


@dataclass(frozen=True, slots=True)
class AddressOptionsAndVersion:
    """One version of the options; 0 sets nothing."""

    version: int
    options: AddressOptions


NO_VERSION: Final = AddressOptionsAndVersion(0, AddressOptions())
_LOCK: Final = text("LOCK TABLE addr_settings IN SHARE ROW EXCLUSIVE MODE")


async def load_newest_version_in_session(session: Session) -> AddressOptionsAndVersion:
    statement = select(AddressOptionsVersion).order_by(col(AddressOptionsVersion.version).desc()).limit(1)
    return _build_version((await session.exec(statement)).one_or_none())


async def load_newest_version(database: Database) -> AddressOptionsAndVersion:
    """Return the newest version, in a transaction of its own."""
    async with database.session() as session:
        return await load_newest_version_in_session(session)


async def load_options_version(database: Database, version: int) -> AddressOptionsAndVersion:
    async with database.session() as session:
        return _build_version(await session.get_one(AddressOptionsVersion, version))


_PAUSES: Final = """
    SELECT DISTINCT ON (module) module, changed_at AS paused_at, who, reason FROM (
        SELECT module, version, changed_at, who, reason, (options #>> ARRAY['modules', module, 'paused']) AS paused,
            lag(options #>> ARRAY['modules', module, 'paused']) OVER (PARTITION BY module ORDER BY version) AS before
        FROM addr_settings CROSS JOIN unnest($1::text[]) AS module
    ) AS changes WHERE paused = 'true' AND before IS DISTINCT FROM 'true' ORDER BY module, version DESC
    """


async def find_last_pause_of_each_module(database: Database, modules: Sequence[str]) -> Mapping[Module, PauseRecord]:
    """Return for each of these modules the version that paused it last; none for one that no version paused."""
    async with database.connection() as connection:
        rows = await connection.fetch(_PAUSES, modules)
    return {Module(row["module"]): PauseRecord(row["paused_at"], row["who"], row["reason"]) for row in rows}


async def list_options_version_page_plus_one(
    session: Session, after: tuple[datetime, int] | None, limit: int
) -> Sequence[AddressOptionsVersion]:
    """List versions, newest first, one more than a page."""
    place = (AddressOptionsVersion.changed_at, AddressOptionsVersion.version)
    return (await session.exec(keyset.select_page_plus_one(select(AddressOptionsVersion), place, after, limit))).all()


async def lock_options_versions_until_commit(session: Session) -> None:
    """Exclude other changes until the transaction ends: of two at a time, one would restore what the other replaced."""
    await session.execute(_LOCK)


async def insert_options_version_row(
    session: Session, options: AddressOptions, actor: ActorWithReason
) -> AddressOptionsAndVersion:
    """Insert a new version, which is in force once the transaction commits."""
    values = options.model_dump(mode="json", exclude_none=True)
    row = AddressOptionsVersion(options=values, who=actor.who, reason=actor.reason)  # type: ignore[call-arg] # by the database
    session.add(row)
    await session.flush()
    return AddressOptionsAndVersion(row.version or 0, options)


def _build_version(row: AddressOptionsVersion | None) -> AddressOptionsAndVersion:
    return (
        NO_VERSION
        if row is None
        else AddressOptionsAndVersion(row.version or 0, AddressOptions.model_validate(row.options))
    )
