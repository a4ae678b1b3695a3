"""Platforms and their configuration: two levels, `default` and each platform's own, checked and versioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from api.http.routes import Call, RouteAccess
from api.orders import quotas
from api.orders.context import PlatformPath, routes
from api.orders.queries import read_platform
from api.orders.requests import PlatformDeclaration, PlatformSetupRequest
from api.orders.responses import PlatformConfigResponse, PlatformResponse, SettingValueAndOrigin
from api.projects import require_not_revoked
from domain.faults import Conflict, Invalid, Missing
from domain.orders import config, known_platforms
from domain.orders.capability import Capability
from domain.orders.config import BUILT_IN_OPTIONS, DEFAULT_LEVEL, PlatformOptions, SettingOrigin
from stores import projects
from stores.orders import platforms
from stores.orders.platforms import (
    NO_OPTIONS,
    DeclaredPlatformSetup,
    PlatformOptionsVersion,
    PlatformWithSettingsInForce,
)
from stores.tables.orders import OrderPlatform
from workflows.orders import handle

_ORIGINS: Final = {
    SettingOrigin.PLATFORM: "its own",
    SettingOrigin.DEFAULT: "the one that all platforms share",
    SettingOrigin.KIND: "that of its kind",
    SettingOrigin.BUILT_IN: "the one that is built in",
}
_PROBLEMS = {"not_found": Missing, "config_invalid": Invalid, "starttime_fixed": Conflict}


@routes.get("/v1/platforms/{platform}/config", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_config(call: Call, path: PlatformPath) -> PlatformConfigResponse:
    """Read a platform's configuration, or with `default` the one that all platforms share.

    Each value comes from the platform, else from the default, else from the limits of its kind or the built-in options.
    """
    async with call.services.database.session() as session:
        levels = await platforms.load_newest_options(session, [DEFAULT_LEVEL, path.platform])
        if path.platform == DEFAULT_LEVEL:
            return _build_default_config_response(levels.get(DEFAULT_LEVEL, NO_OPTIONS))
        state = await platforms.load_platform_with_settings(session, path.platform)
        return _build_config_response(
            state, levels.get(DEFAULT_LEVEL, NO_OPTIONS), levels.get(path.platform, NO_OPTIONS)
        )


@routes.put("/v1/platforms/{platform}/config", access=RouteAccess.ADMIN, problems=_PROBLEMS)
async def replace_config(call: Call, path: PlatformPath, body: PlatformOptions) -> PlatformConfigResponse:
    """Replace the options of one level: what you leave out comes from the level above. `PATCH` changes single options.

    The result is checked against the limits of each platform and is in force for the next slice, on every worker.
    """
    return await _change_options(call, path, lambda _: body)


@routes.patch("/v1/platforms/{platform}/config", access=RouteAccess.ADMIN, problems=_PROBLEMS)
async def change_config(call: Call, path: PlatformPath, body: PlatformOptions) -> PlatformConfigResponse:
    """Change some options of one level: what you leave out stays, and null takes a value from the level above.

    The result is checked against the limits of each platform and is in force for the next slice, on every worker.
    """
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    return await _change_options(call, path, lambda before: before.model_copy(update=changes))


@routes.put(
    "/v1/platforms/{platform}",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.OK,
    problems={
        "not_found": Missing,
        "platform_invalid": Invalid,
        "config_invalid": Invalid,
        "address_denied": Invalid,
        "invalid_url": Invalid,
        "platform_already_started": Conflict,
        "project_revoked": Conflict,
    },
)
async def set_up_platform(call: Call, path: PlatformPath, body: PlatformSetupRequest) -> PlatformResponse:
    """Set up a platform, or change its address and who receives its alarms.

    Its schedule starts at once, unless `is_paused` is true. Kind, shop and project cannot change once orders were
    claimed.
    """
    _require_valid_name_capability_and_webhook(call, path.platform, body)
    async with call.services.database.session() as session:
        await platforms.lock_options_until_commit(session)
        # Locked, so that two platforms that are set up at once cannot both be the last one.
        project = await projects.find_project(session, body.project_id, lock=True)
        if project is None:
            raise Missing("not_found", f"There is no project {body.project_id!r}.", "Make it with POST /v1/projects.")
        require_not_revoked(project)
        before = await platforms.find_platform_including_removed(session, path.platform, lock=True)
        if before is None or before.project_id != body.project_id or before.removed_at is not None:
            await quotas.require_quota_for_one_more_platform(session, project, call.services.settings.quotas)
        if before is not None and (before.starts_at is not None or before.removed_at is not None):
            _require_unchanged_account(before, body)
        notify = None if body.notify_url is None else call.services.sealer.seal(body.notify_url).token
        # As it was sent: what it leaves out follows our defaults, also those of later versions.
        record = None if body.capability is None else body.capability.model_dump(mode="json", exclude_unset=True)
        was_removed = before is not None and before.removed_at is not None
        setup = DeclaredPlatformSetup(body.project_id, body.kind, body.shop, body.base_url, record, notify)
        row = platforms.create_or_update_platform(session, path.platform, setup, before)
        await call.services.database.notify_on_commit(session, platforms.CHANNEL, path.platform)
        levels = await platforms.load_newest_options(session, [DEFAULT_LEVEL, path.platform])
        state = platforms.combine_platform_with_options(
            row, levels.get(DEFAULT_LEVEL, NO_OPTIONS), levels.get(path.platform, NO_OPTIONS)
        )
        state.require_workable_settings()
        # Before the commit, so that no platform is left without its schedule when the engine fails.
        await handle.set_watch_schedule_intervals_if_none(call.services.engine)
        if was_removed:
            # A removal that the engine interrupted has left it, paused.
            await handle.terminate_workflows_and_delete_schedule(call.services.engine, path.platform)
        pause_note = handle.SETUP_PAUSE_NOTE if body.is_paused else ""
        await handle.create_or_update_cycle_schedule(call.services.engine, path.platform, body.project_id, pause_note)
    return await read_platform(call, path)


async def _change_options(
    call: Call, path: PlatformPath, change: Callable[[PlatformOptions], PlatformOptions]
) -> PlatformConfigResponse:
    async with call.services.database.session() as session:
        await platforms.lock_options_until_commit(session)
        rows = await platforms.list_platforms_affected_by_level(session, path.platform)
        levels = await platforms.load_newest_options(session, [DEFAULT_LEVEL, *(row.platform for row in rows)])
        before, earlier = levels.get(path.platform, NO_OPTIONS), _combine_platforms_with_options(rows, levels)
        options = change(before.options)
        require_existing_credentials_file(call.services.settings.orders.credentials_folder, options.credentials)
        # Unchanged options make no new version; the first one says that the platform is configured, also without any.
        is_same = options == before.options and before.version > 0
        level = before if is_same else await platforms.insert_options_version(session, path.platform, options)
        await call.services.database.notify_on_commit(session, platforms.CHANNEL, path.platform)
        levels[path.platform] = level
        standings = _combine_platforms_with_options(rows, levels)
        for state in standings:
            state.require_workable_settings()
        for state, earlier_state in zip(standings, earlier, strict=True):
            _reject_changed_starttime(state, earlier_state.settings.starttime)
        if path.platform == DEFAULT_LEVEL:
            return _build_default_config_response(level)
        return _build_config_response(standings[0], levels.get(DEFAULT_LEVEL, NO_OPTIONS), level)


def _combine_platforms_with_options(
    rows: Sequence[OrderPlatform], levels: Mapping[str, PlatformOptionsVersion]
) -> list[PlatformWithSettingsInForce]:
    """Build the states of platforms from these versions of the levels."""
    defaults = levels.get(DEFAULT_LEVEL, NO_OPTIONS)
    return [
        platforms.combine_platform_with_options(row, defaults, levels.get(row.platform, NO_OPTIONS)) for row in rows
    ]


def _reject_changed_starttime(state: PlatformWithSettingsInForce, before: str) -> None:
    """Refuse another starttime for a platform that has begun: earlier orders would be a gap that no watermark shows.

    Args:
        here: The platform as it would be.
        before: The starttime that is in force now.
    """
    row, starttime = state.row, state.settings.starttime
    if row.starts_at is None or starttime == before:
        return
    if config.is_relative_starttime(starttime) or config.resolve_starttime(starttime, row.starts_at) != row.starts_at:
        raise Conflict(
            "starttime_fixed",
            f"Platform {row.platform} began at {row.starts_at.isoformat()}, which is kept; "
            f"starttime {starttime}, which is {_ORIGINS[state.origins['starttime']]}, would change it.",
            f"To keep it, leave starttime out of PATCH /v1/platforms/{row.platform}/config (of a command: --since), or "
            f"send {before} along with PUT /v1/platforms/{row.platform}/config; or set starttime of {row.platform} "
            f"itself to {row.starts_at.isoformat()}. For earlier orders, set up the same account under another name.",
            field="starttime",
        )


def require_existing_credentials_file(folder: Path, name: str | None) -> None:
    """Refuse a name without a file: each slice would wait for credentials that do not exist."""
    if name is not None and not (folder / f"{name}.json").is_file():
        raise Invalid(
            "config_invalid",
            f"There are no credentials {name!r}: HAULAGE_ORDERS__CREDENTIALS_FOLDER has no file {name}.json.",
            "Put the file there first, for the API and the workers, or name one that is there.",
            field="credentials",
        )


def _build_config_response(
    state: PlatformWithSettingsInForce, defaults: PlatformOptionsVersion, own: PlatformOptionsVersion
) -> PlatformConfigResponse:
    return PlatformConfigResponse(
        platform=state.row.platform,
        version=state.settings.version,
        effective=_build_setting_values(state),
        inherited=_build_setting_values(platforms.combine_platform_with_options(state.row, defaults, NO_OPTIONS)),
        own=own.options,
    )


def _build_setting_values(state: PlatformWithSettingsInForce) -> dict[str, SettingValueAndOrigin]:
    values = state.settings.model_dump(exclude={"version"})
    return {
        name: SettingValueAndOrigin(value=values[name], origin=state.origins[name])
        for name in PlatformOptions.model_fields
    }


def _build_default_config_response(level: PlatformOptionsVersion) -> PlatformConfigResponse:
    """Build the response for the level that all platforms share, before any kind's limits."""
    own: Mapping[str, JsonValue] = level.options.model_dump()
    built_in: Mapping[str, JsonValue] = BUILT_IN_OPTIONS.model_dump()
    inherited = {
        name: SettingValueAndOrigin(value=built_in[name], origin=SettingOrigin.BUILT_IN)
        for name in PlatformOptions.model_fields
    }
    effective = {
        name: above if own[name] is None else SettingValueAndOrigin(value=own[name], origin=SettingOrigin.DEFAULT)
        for name, above in inherited.items()
    }
    return PlatformConfigResponse(
        platform=DEFAULT_LEVEL, version=level.version, effective=effective, inherited=inherited, own=level.options
    )


def _require_valid_name_capability_and_webhook(call: Call, platform: str, body: PlatformSetupRequest) -> None:
    if platform == DEFAULT_LEVEL:
        raise Invalid(
            "platform_invalid", "The name `default` stands for the shared configuration.", "Choose another name."
        )
    resolve_declared_capability(call, body)
    if body.notify_url is not None:
        call.services.http.require_url_allowed_before_lookup(body.notify_url)


def resolve_declared_capability(call: Call, body: PlatformDeclaration) -> Capability:
    """Return the declared capability, or that of the kind.

    Raises:
        Invalid: The kind is not known, differs from that of the capability, or an address is refused.
    """
    if body.capability is None and body.kind not in known_platforms.KNOWN_PLATFORMS:
        kinds = ", ".join(sorted(known_platforms.KNOWN_PLATFORMS))
        raise Invalid(
            "platform_invalid",
            f"There is no built-in kind {body.kind!r}; there are {kinds}.",
            "Choose one of them, or send a `capability`.",
        )
    record = body.capability or known_platforms.KNOWN_PLATFORMS[body.kind]
    if record.kind != body.kind:
        raise Invalid(
            "platform_invalid",
            f"The kind is {body.kind!r}, its capability is that of {record.kind!r}.",
            "Give both the same name.",
        )
    call.services.http.require_url_allowed_before_lookup(body.base_url)
    if "?" in body.base_url or "#" in body.base_url:
        raise Invalid(
            "platform_invalid",
            f"The base_url {body.base_url[:200]!r} holds a query or a fragment, and paths are put behind it.",
            "Leave it out; what each request sends besides belongs into `query.parameters` of the `capability`.",
            field="base_url",
        )
    if record.access.renewal is not None and not record.access.renewal.url.startswith("/"):
        call.services.http.require_url_allowed_before_lookup(record.access.renewal.url)
    return record


def _require_unchanged_account(row: OrderPlatform, body: PlatformSetupRequest) -> None:
    before, now = (row.project_id, row.kind, row.shop), (body.project_id, body.kind, body.shop)
    if before != now:
        raise Conflict(
            "platform_already_started",
            f"Platform {row.platform} has orders of project {before[0]}, kind {before[1]}, shop {before[2]}.",
            "Set up the other account under another name.",
        )
