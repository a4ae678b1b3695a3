"""Configuring: two levels, `default` and each platform's own, checked before they are in force and kept by version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import Field, JsonValue
from sqlalchemy import text
from sqlmodel import col, select

from activities.orders import configuration
from activities.orders.configuration import UNSET, Standing, Version
from api.models import Answer
from api.orders.room import PlatformPath, routes
from api.routes import Access, Call
from domain.faults import Conflict, Invalid, Missing
from domain.orders import config
from domain.orders.config import BUILT_IN, DEFAULT, Options, Origin
from infra.database import Session
from infra.tables.orders import OrderPlatform, OrderSetting

# Two changes at a time, one of each level, could be right alone and wrong together.
_ONE_AT_A_TIME: Final = text("LOCK TABLE order_settings IN SHARE ROW EXCLUSIVE MODE")
_PROBLEMS = {"not_found": Missing, "config_invalid": Invalid, "starttime_kept": Conflict}


class Value(Answer):
    """One value, and where it comes from."""

    value: JsonValue
    origin: Origin


class Config(Answer):
    """What is in force."""

    platform: str
    version: int = Field(description="grows with every change; each slice notes the one that it was read by")
    effective: dict[str, Value]
    inherited: dict[str, Value] = Field(description="what would be in force if this level set nothing")
    own: Options = Field(description="what this level sets; send it back changed")


@routes.get("/v1/platforms/{platform}/config", access=Access.ADMIN, problems={"not_found": Missing})
async def show_config(call: Call, path: PlatformPath) -> Config:
    """Show a platform's configuration, or with `default` what all share.

    Each value comes from the platform, else from the default, else from what its kind allows or what is built in.
    """
    async with call.services.database.session() as session:
        levels = await configuration.newest(session, [DEFAULT, path.platform])
        if path.platform == DEFAULT:
            return _shared(levels.get(DEFAULT, UNSET))
        here = await configuration.standing(session, path.platform)
        return _shown(here, levels.get(DEFAULT, UNSET), levels.get(path.platform, UNSET))


@routes.put("/v1/platforms/{platform}/config", access=Access.ADMIN, problems=_PROBLEMS)
async def set_config(call: Call, path: PlatformPath, body: Options) -> Config:
    """Set what one level says, whole: what you leave out comes from the level above. `PATCH` changes single values.

    It is checked against what each platform allows and is in force for the next slice, on every worker.
    """
    return await _changed(call, path, lambda _: body)


@routes.patch("/v1/platforms/{platform}/config", access=Access.ADMIN, problems=_PROBLEMS)
async def change_config(call: Call, path: PlatformPath, body: Options) -> Config:
    """Change some of what one level says: what you leave out stays, and null takes a value from the level above.

    It is checked against what each platform allows and is in force for the next slice, on every worker.
    """
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    return await _changed(call, path, lambda before: before.model_copy(update=changes))


async def _changed(call: Call, path: PlatformPath, change: Callable[[Options], Options]) -> Config:
    async with call.services.database.session() as session:
        await session.execute(_ONE_AT_A_TIME)
        rows = await _concerned(session, path.platform)
        levels = await configuration.newest(session, [DEFAULT, *(row.platform for row in rows)])
        before = levels.get(path.platform, UNSET)
        options = change(before.options)
        _check_credentials(call.services.settings.orders.credentials_folder, options.credentials)
        level = await _entered(session, path.platform, options, before)
        levels[path.platform] = level
        standings = [
            configuration.stand(row, levels.get(DEFAULT, UNSET), levels.get(row.platform, UNSET)) for row in rows
        ]
        for here in standings:
            here.check()
        if path.platform == DEFAULT:
            return _shared(level)
        _check_kept(rows[0], options, before.options)
        return _shown(standings[0], levels.get(DEFAULT, UNSET), level)


async def _concerned(session: Session, platform: str) -> list[OrderPlatform]:
    """The platforms that a change of this level changes."""
    statement = select(OrderPlatform).order_by(col(OrderPlatform.platform))
    if platform != DEFAULT:
        statement = statement.where(OrderPlatform.platform == platform)
    rows = list(await session.exec(statement))
    if not rows and platform != DEFAULT:
        raise configuration.unknown(platform)
    return rows


async def _entered(session: Session, platform: str, options: Options, before: Version) -> Version:
    """The new version of a level; the same again is none."""
    if options == before.options:
        return before
    row = OrderSetting(platform=platform, options=options.model_dump(exclude_none=True), changed_at=datetime.now(UTC))
    session.add(row)
    await session.flush()
    return Version(row.version or 0, options)


def _check_kept(row: OrderPlatform, options: Options, before: Options) -> None:
    """A platform that has begun keeps its beginning: earlier orders would be a hole that no mark shows."""
    starttime = options.starttime
    if row.starts_at is None or starttime in (None, before.starttime):
        return
    if config.is_relative(starttime) or config.begins_at(starttime, row.starts_at) != row.starts_at:
        raise Conflict(
            "starttime_kept",
            f"Platform {row.platform} began at {row.starts_at.isoformat()}, which is kept; "
            f"starttime {starttime} would change it.",
            "Leave starttime as it is. For earlier orders, set up the same account under another number.",
            field="starttime",
        )


def _check_credentials(folder: Path, name: str | None) -> None:
    """Where this process can see the credentials, they are there; elsewhere only workers can."""
    if name is not None and folder.is_dir() and not (folder / f"{name}.json").is_file():
        raise Invalid(
            "config_invalid",
            f"There are no credentials {name!r}: HAULAGE_ORDERS__CREDENTIALS_FOLDER has no file {name}.json.",
            "Put the file there first, for the API and the workers, or name one that is there.",
            field="credentials",
        )


def _shown(here: Standing, defaults: Version, own: Version) -> Config:
    return Config(
        platform=here.row.platform,
        version=here.settings.version,
        effective=_values(here),
        inherited=_values(configuration.stand(here.row, defaults, UNSET)),
        own=own.options,
    )


def _values(here: Standing) -> dict[str, Value]:
    values = here.settings.model_dump(exclude={"version"})
    return {name: Value(value=values[name], origin=here.origins[name]) for name in Options.model_fields}


def _shared(level: Version) -> Config:
    """The defaults, before any platform's kind is asked."""
    own: Mapping[str, JsonValue] = level.options.model_dump()
    built_in: Mapping[str, JsonValue] = BUILT_IN.model_dump()
    inherited = {name: Value(value=built_in[name], origin=Origin.BUILT_IN) for name in Options.model_fields}
    effective = {
        name: above if own[name] is None else Value(value=own[name], origin=Origin.DEFAULT)
        for name, above in inherited.items()
    }
    return Config(platform=DEFAULT, version=level.version, effective=effective, inherited=inherited, own=level.options)
