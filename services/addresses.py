"""Services of addresses: the settings in force, the clients that use them, and the trigger of cycles."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.client import Client, ScheduleIntervalSpec, ScheduleOverlapPolicy, ScheduleUpdate, ScheduleUpdateInput
from temporalio.service import RPCError

from clients.modules import ModulesClient
from domain.addresses import names
from domain.addresses.operations import AddressPage, LiveUprnsAndAppliedOps, Module, Operation, OperationResult
from infra import log
from infra.address_settings import AddressSettings, AllModulesSettings
from infra.database import Database
from stores.addresses import configuration as versions
from stores.addresses.configuration import NO_VERSION, AddressOptions, AddressOptionsAndVersion
from stores.pauses import PauseRecord


@dataclass(frozen=True, slots=True)
class VersionedAddressSettingsAndClient:
    """The settings of a cycle, from its beginning to its end."""

    version: int
    settings: AddressSettings
    modules: ModulesClient


def apply_options_to_settings(defaults: AddressSettings, options: AddressOptions) -> AddressSettings:
    """Return the environment's settings with the options applied."""
    modules = {
        module.value: getattr(defaults.modules, module).model_copy(
            update=options.get_module_options(module).non_null_values
        )
        for module in Module
    }
    values = {**options.non_null_values, "modules": AllModulesSettings(**modules)}
    return defaults.model_copy(update=values)


async def load_effective_settings(database: Database, defaults: AddressSettings) -> AddressSettings:
    """Return the settings in force now."""
    return apply_options_to_settings(defaults, (await versions.load_newest_version(database)).options)


async def load_module_pauses(database: Database, defaults: AddressSettings) -> Mapping[Module, PauseRecord]:
    """Return the modules that are paused now, each with who paused it, since when and why."""
    return await find_pauses_of_paused_modules(database, await load_effective_settings(database, defaults))


async def find_pauses_of_paused_modules(database: Database, settings: AddressSettings) -> Mapping[Module, PauseRecord]:
    """Return the modules that these settings pause, each with who paused it, since when and why."""
    if not (paused := settings.modules.paused):
        return {}
    found = await versions.find_last_pause_of_each_module(database, paused)
    return {
        module: found.get(
            module, PauseRecord(None, "the environment", f"HAULAGE_ADDRESSES__MODULES__{name.upper()}__PAUSED")
        )
        for name in paused
        if (module := Module(name))
    }


class ConfigurationLoader:
    """Load the configuration in force, with a client of the modules that uses it.

    Args:
        modules: The client with the settings of the environment.
        defaults: The settings of the environment.
    """

    def __init__(self, database: Database, modules: ModulesClient, defaults: AddressSettings) -> None:
        self._database = database
        self._modules = modules
        self._defaults = defaults

    async def load_newest(self) -> VersionedAddressSettingsAndClient:
        """Return the configuration for a cycle that begins now."""
        return self._build_effective(await versions.load_newest_version(self._database))

    async def load_options_version(self, version: int) -> VersionedAddressSettingsAndClient:
        """Return the configuration of a cycle that began under this version."""
        if version == 0:
            return self._build_effective(NO_VERSION)
        return self._build_effective(await versions.load_options_version(self._database, version))

    def _build_effective(self, version: AddressOptionsAndVersion) -> VersionedAddressSettingsAndClient:
        settings = apply_options_to_settings(self._defaults, version.options)
        return VersionedAddressSettingsAndClient(version.version, settings, self._modules.copy_with_settings(settings))


class ModulesClientWithNewestSettings:
    """A client of the modules that uses the newest settings for each call, for work outside of cycles."""

    def __init__(self, configuration: ConfigurationLoader) -> None:
        self._configuration = configuration

    async def apply_operations(self, module: Module, operations: Sequence[Operation]) -> list[OperationResult]:
        return await (await self._load_client_with_newest_settings()).apply_operations(module, operations)

    async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        return await (await self._load_client_with_newest_settings()).list_addresses(module, after, limit)

    async def look_up_operations(self, module: Module, operations: Sequence[Operation]) -> LiveUprnsAndAppliedOps:
        return await (await self._load_client_with_newest_settings()).look_up_operations(module, operations)

    async def list_addresses_with_open_orders(self, module: Module, address_ids: Collection[int]) -> set[int]:
        return await (await self._load_client_with_newest_settings()).list_addresses_with_open_orders(
            module, address_ids
        )

    async def _load_client_with_newest_settings(self) -> ModulesClient:
        return (await self._configuration.load_newest()).modules


TRIGGER_INTERVAL_SECONDS: Final = 1.0

_log = log.get(__name__)


class CycleTrigger:
    """Triggers the schedule of cycles in the background.

    Args:
        pause_seconds: The interval of a schedule that had none until its first message came.
    """

    def __init__(self, engine: Client, pause_seconds: float) -> None:
        self._pause = timedelta(seconds=pause_seconds)
        self._schedule = engine.get_schedule_handle(names.CYCLE_SCHEDULE)
        self._is_requested = False
        self._task: asyncio.Task[None] | None = None

    def request_cycle(self) -> None:
        """Have a cycle begin after this moment, within about a second."""
        self._is_requested = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._trigger_once_per_second())

    async def close(self) -> None:
        """Cancel a pending trigger; the schedule's interval covers what is left."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _trigger_once_per_second(self) -> None:
        while self._is_requested:
            self._is_requested = False
            try:
                await self._trigger_unless_paused()
            except RPCError as error:
                # The schedule's interval, a minute at most, starts a cycle anyway.
                _log.warning("address_cycle_trigger_failed", error=str(error))
            await asyncio.sleep(TRIGGER_INTERVAL_SECONDS)

    async def _trigger_unless_paused(self) -> None:
        found = (await self._schedule.describe()).schedule
        if not found.spec.intervals:
            await self._schedule.update(self._set_schedule_interval)
        # A trigger would also start a paused schedule.
        if not found.state.paused:
            # Not SKIP: a cycle that is about to end may have loaded its messages before the commit.
            await self._schedule.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ONE)

    def _set_schedule_interval(self, current: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule = current.description.schedule
        schedule.spec.intervals = [ScheduleIntervalSpec(every=self._pause)]
        return ScheduleUpdate(schedule=schedule)
