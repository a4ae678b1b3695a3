"""Read and change the settings of cycles and modules. Each change is a version, validated before it is in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from pydantic import AwareDatetime, Field

from api.addresses.context import CYCLE_TRIGGER, routes
from api.http import pagination
from api.http.models import OperatorRequest, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from domain.addresses.operations import Module
from domain.faults import Invalid
from infra.address_settings import AddressSettings
from services import addresses
from stores.addresses import configuration as addresses_configuration
from stores.addresses.actions import ActorWithReason
from stores.addresses.configuration import (
    AddressOptions,
    AddressOptionsAndVersion,
    replace_sent_options_and_keep_others,
)
from workflows.addresses import handle

_PROBLEMS = {"config_invalid": Invalid}


class SetAddressConfigRequest(OperatorRequest):
    """The options to set, by whom and why."""

    options: AddressOptions


class EffectiveModuleSettings(Response):
    """The settings in force for a module."""

    base_url: str
    credentials: str = Field(description="the name of its file, never its content")
    timeout_seconds: float
    concurrency: int
    batch: int
    retries: int
    retry_pause_seconds: float
    breaker_failures: int
    breaker_seconds: float
    paused: bool


class EffectiveSettings(Response):
    """The settings in force for cycles."""

    threshold: int
    minimum_share: float
    pause_seconds: float
    failed_cycles_max: int
    retry_pause_seconds: float
    group_messages_max: int
    step_concurrency: int
    check_hours: float
    auto_purge: bool
    modules: dict[Module, EffectiveModuleSettings]

    @classmethod
    def from_settings(cls, settings: AddressSettings) -> Self:
        """These of all settings."""
        modules = {
            module: EffectiveModuleSettings.model_validate(getattr(settings.modules, module), from_attributes=True)
            for module in Module
        }
        names = cls.model_fields.keys() - {"modules"}
        return cls(**{name: getattr(settings, name) for name in names}, modules=modules)


class AddressConfigResponse(Response):
    """The settings in force, and the options that operators set."""

    version: int = Field(description="grows with every change; 0 while no option is set")
    effective: EffectiveSettings
    own: AddressOptions = Field(description="the options of this version; all others come from the API's environment")


class AddressConfigVersion(Response):
    """A version of the options."""

    version: int
    changed_at: AwareDatetime
    who: str
    reason: str
    options: AddressOptions = Field(description="all options of this version")


@routes.get("/v1/addresses/config", access=RouteAccess.ADMIN)
async def read_config(call: Call) -> AddressConfigResponse:
    """Show the settings of cycles and modules.

    Options that no version sets come from the environment (`HAULAGE_ADDRESSES__…`), which should be the same for all
    processes.
    """
    async with call.services.database.session() as session:
        return _build_config_response(call, await addresses_configuration.load_newest_version_in_session(session))


@routes.put("/v1/addresses/config", access=RouteAccess.ADMIN, problems=_PROBLEMS)
async def replace_config(call: Call, body: SetAddressConfigRequest) -> AddressConfigResponse:
    """Replace all options: those left out come from the environment. `PATCH` changes single options.

    The new version is in force from the next cycle, on every worker; a running cycle keeps its settings. Setting the
    same options again creates no version.
    """
    return await _save_options_and_update_schedules(call, body, lambda _: body.options)


@routes.patch("/v1/addresses/config", access=RouteAccess.ADMIN, problems=_PROBLEMS)
async def change_config(call: Call, body: SetAddressConfigRequest) -> AddressConfigResponse:
    """Change some options: those left out keep their value, and null restores the environment's.

    The new version is in force from the next cycle, on every worker; a running cycle keeps its settings.
    """
    return await _save_options_and_update_schedules(
        call, body, lambda before: replace_sent_options_and_keep_others(before, body.options)
    )


@routes.get("/v1/addresses/config/versions", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_config_versions(call: Call, query: PageQuery) -> PageResponse[AddressConfigVersion]:
    """List versions, newest first, with who set them, when and why."""
    after = query.after and (query.after[0], pagination.parse_numeric_id_or_zero(query.after[1]))
    async with call.services.database.session() as session:
        rows = await addresses_configuration.list_options_version_page_plus_one(session, after, query.limit)
    return pagination.build_page(
        rows,
        query.limit,
        lambda row: AddressConfigVersion.model_validate(row, from_attributes=True),
        lambda row: (row.changed_at, str(row.version)),
    )


async def _save_options_and_update_schedules(
    call: Call, body: SetAddressConfigRequest, change: Callable[[AddressOptions], AddressOptions]
) -> AddressConfigResponse:
    environment = call.services.settings.addresses
    async with call.services.database.session() as session:
        await addresses_configuration.lock_options_versions_until_commit(session)
        version = await addresses_configuration.load_newest_version_in_session(session)
        paused = addresses.apply_options_to_settings(environment, version.options).modules.paused
        options = change(version.options)
        _require_allowed_addresses_and_credentials(call, options)
        if options.model_dump(exclude_none=True) != version.options.model_dump(exclude_none=True):
            version = await addresses_configuration.insert_options_version_row(
                session, options, ActorWithReason(body.who, body.reason)
            )
    settings = addresses.apply_options_to_settings(environment, version.options)
    if set(paused) - set(settings.modules.paused):
        # It finds what waited for a resumed module.
        call.request.app[CYCLE_TRIGGER].request_cycle()
    # Also without a new version: a repeated request completes a change whose update of the schedules failed.
    await _update_schedules_to_newest_version(call, version)
    return _build_config_response(call, version)


async def _update_schedules_to_newest_version(call: Call, version: AddressOptionsAndVersion) -> None:
    """Set the intervals of the schedules, and once more where a change came meanwhile, whose update may be older."""
    while True:
        settings = addresses.apply_options_to_settings(call.services.settings.addresses, version.options)
        await handle.update_schedule_intervals(call.services.engine, settings.pause_seconds, settings.check_hours)
        newest = await addresses_configuration.load_newest_version(call.services.database)
        if newest.version == version.version:
            return
        version = newest


def _require_allowed_addresses_and_credentials(call: Call, options: AddressOptions) -> None:
    """Refuse addresses that the guard denies, and names of credentials without a file."""
    environment = call.services.settings.addresses
    for module in Module:
        sent, field = options.get_module_options(module), f"options.modules.{module}"
        if sent.base_url is not None and sent.base_url != getattr(environment.modules, module).base_url:
            try:
                call.services.http.require_url_allowed_before_lookup(sent.base_url)
            except Invalid as refusal:
                record = refusal.record
                raise Invalid("config_invalid", record.message, record.hint, field=f"{field}.base_url") from None
        if sent.credentials and not (environment.credentials_folder / f"{sent.credentials}.json").is_file():
            raise Invalid(
                "config_invalid",
                f"There are no credentials {sent.credentials!r}: HAULAGE_ADDRESSES__CREDENTIALS_FOLDER has no file "
                f"{sent.credentials}.json.",
                "Put the file there first, for the API and the workers, or name an existing one.",
                field=f"{field}.credentials",
            )


def _build_config_response(call: Call, version: AddressOptionsAndVersion) -> AddressConfigResponse:
    settings = addresses.apply_options_to_settings(call.services.settings.addresses, version.options)
    return AddressConfigResponse(
        version=version.version, effective=EffectiveSettings.from_settings(settings), own=version.options
    )
