"""Configuration: two levels, `default` and each platform's own, checked before they are in force and versioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from api.http.routes import Access, Call
from api.orders.context import PlatformPath, routes
from api.orders.responses import PlatformConfigResponse, SettingValue
from domain.faults import Conflict, Invalid, Missing
from domain.orders import config
from domain.orders.config import BUILT_IN_OPTIONS, DEFAULT_LEVEL, PlatformOptions, SettingOrigin
from stores.orders import platforms
from stores.orders.platforms import NO_OPTIONS, PlatformOptionsVersion, PlatformState
from stores.tables.orders import OrderPlatform

_ORIGINS: Final = {
    SettingOrigin.PLATFORM: "its own",
    SettingOrigin.DEFAULT: "the one that all platforms share",
    SettingOrigin.KIND: "that of its kind",
    SettingOrigin.BUILT_IN: "the one that is built in",
}
_PROBLEMS = {"not_found": Missing, "config_invalid": Invalid, "starttime_kept": Conflict}


@routes.get("/v1/platforms/{platform}/config", access=Access.ADMIN, problems={"not_found": Missing})
async def read_config(call: Call, path: PlatformPath) -> PlatformConfigResponse:
    """Read a platform's configuration, or with `default` the one that all platforms share.

    Each value comes from the platform, else from the default, else from the limits of its kind or the built-in options.
    """
    async with call.services.database.session() as session:
        levels = await platforms.load_options(session, [DEFAULT_LEVEL, path.platform])
        if path.platform == DEFAULT_LEVEL:
            return _build_default_response(levels.get(DEFAULT_LEVEL, NO_OPTIONS))
        here = await platforms.load(session, path.platform)
        return _build_response(here, levels.get(DEFAULT_LEVEL, NO_OPTIONS), levels.get(path.platform, NO_OPTIONS))


@routes.put("/v1/platforms/{platform}/config", access=Access.ADMIN, problems=_PROBLEMS)
async def set_config(call: Call, path: PlatformPath, body: PlatformOptions) -> PlatformConfigResponse:
    """Replace the options of one level: what you leave out comes from the level above. `PATCH` changes single options.

    The result is checked against the limits of each platform and is in force for the next slice, on every worker.
    """
    return await _change_level(call, path, lambda _: body)


@routes.patch("/v1/platforms/{platform}/config", access=Access.ADMIN, problems=_PROBLEMS)
async def change_config(call: Call, path: PlatformPath, body: PlatformOptions) -> PlatformConfigResponse:
    """Change some options of one level: what you leave out stays, and null takes a value from the level above.

    The result is checked against the limits of each platform and is in force for the next slice, on every worker.
    """
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    return await _change_level(call, path, lambda before: before.model_copy(update=changes))


async def _change_level(
    call: Call, path: PlatformPath, change: Callable[[PlatformOptions], PlatformOptions]
) -> PlatformConfigResponse:
    async with call.services.database.session() as session:
        await platforms.lock_options(session)
        rows = await platforms.list_affected(session, path.platform)
        levels = await platforms.load_options(session, [DEFAULT_LEVEL, *(row.platform for row in rows)])
        before, earlier = levels.get(path.platform, NO_OPTIONS), _build_states(rows, levels)
        options = change(before.options)
        _check_credentials(call.services.settings.orders.credentials_folder, options.credentials)
        # Unchanged options make no new version.
        is_same = options == before.options
        level = before if is_same else await platforms.add_options(session, path.platform, options)
        levels[path.platform] = level
        standings = _build_states(rows, levels)
        for here in standings:
            here.check()
        for here, there in zip(standings, earlier, strict=True):
            _check_starttime(here, there.settings.starttime)
        if path.platform == DEFAULT_LEVEL:
            return _build_default_response(level)
        return _build_response(standings[0], levels.get(DEFAULT_LEVEL, NO_OPTIONS), level)


def _build_states(rows: Sequence[OrderPlatform], levels: Mapping[str, PlatformOptionsVersion]) -> list[PlatformState]:
    """Build the states of platforms from these versions of the levels."""
    defaults = levels.get(DEFAULT_LEVEL, NO_OPTIONS)
    return [platforms.build_state(row, defaults, levels.get(row.platform, NO_OPTIONS)) for row in rows]


def _check_starttime(here: PlatformState, before: str) -> None:
    """Refuse another starttime for a platform that has begun: earlier orders would be a hole that no watermark shows.

    Args:
        here: The platform as it would be.
        before: The starttime that is in force now.
    """
    row, starttime = here.row, here.settings.starttime
    if row.starts_at is None or starttime == before:
        return
    if config.is_relative_starttime(starttime) or config.resolve_starttime(starttime, row.starts_at) != row.starts_at:
        raise Conflict(
            "starttime_kept",
            f"Platform {row.platform} began at {row.starts_at.isoformat()}, which is kept; "
            f"starttime {starttime}, which is {_ORIGINS[here.origins['starttime']]}, would change it.",
            f"Leave starttime {before} as it is, and send it along with PUT; or set starttime of {row.platform} "
            f"itself to {row.starts_at.isoformat()}. For earlier orders, set up the same account under another number.",
            field="starttime",
        )


def _check_credentials(folder: Path, name: str | None) -> None:
    """Refuse a name without a file: each slice would wait for credentials that do not exist."""
    if name is not None and not (folder / f"{name}.json").is_file():
        raise Invalid(
            "config_invalid",
            f"There are no credentials {name!r}: HAULAGE_ORDERS__CREDENTIALS_FOLDER has no file {name}.json.",
            "Put the file there first, for the API and the workers, or name one that is there.",
            field="credentials",
        )


def _build_response(
    here: PlatformState, defaults: PlatformOptionsVersion, own: PlatformOptionsVersion
) -> PlatformConfigResponse:
    return PlatformConfigResponse(
        platform=here.row.platform,
        version=here.settings.version,
        effective=_build_values(here),
        inherited=_build_values(platforms.build_state(here.row, defaults, NO_OPTIONS)),
        own=own.options,
    )


def _build_values(here: PlatformState) -> dict[str, SettingValue]:
    values = here.settings.model_dump(exclude={"version"})
    return {name: SettingValue(value=values[name], origin=here.origins[name]) for name in PlatformOptions.model_fields}


def _build_default_response(level: PlatformOptionsVersion) -> PlatformConfigResponse:
    """Build the response for the level that all platforms share, before any kind's limits."""
    own: Mapping[str, JsonValue] = level.options.model_dump()
    built_in: Mapping[str, JsonValue] = BUILT_IN_OPTIONS.model_dump()
    inherited = {
        name: SettingValue(value=built_in[name], origin=SettingOrigin.BUILT_IN) for name in PlatformOptions.model_fields
    }
    effective = {
        name: above if own[name] is None else SettingValue(value=own[name], origin=SettingOrigin.DEFAULT)
        for name, above in inherited.items()
    }
    return PlatformConfigResponse(
        platform=DEFAULT_LEVEL, version=level.version, effective=effective, inherited=inherited, own=level.options
    )
