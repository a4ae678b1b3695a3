"""Settings in force: the newest version that operators set, over the environment of this process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from clients.modules import Modules
from domain.addresses.configuration import AddressOptions
from domain.addresses.operations import AddressPage, Module, ModuleLookup, Operation, OperationResult
from infra.database import Database
from infra.settings import AddressSettings, ModulesSettings
from stores.addresses import configuration as versions
from stores.addresses.configuration import NO_VERSION, OptionsVersion


@dataclass(frozen=True, slots=True)
class EffectiveConfiguration:
    """What a cycle goes by, from its beginning to its end."""

    version: int
    settings: AddressSettings
    modules: Modules


def apply_options(defaults: AddressSettings, options: AddressOptions) -> AddressSettings:
    """The settings under these options."""
    modules = {
        module.value: getattr(defaults.modules, module).model_copy(update=options.get_module(module).set_values)
        for module in Module
    }
    values = {**options.set_values, "modules": ModulesSettings(**modules)}
    return defaults.model_copy(update=values)


async def load_settings(database: Database, defaults: AddressSettings) -> AddressSettings:
    """The settings of this moment."""
    return apply_options(defaults, (await versions.load_newest(database)).options)


class ConfigurationStore:
    """The versions, and a client of the modules for each.

    Args:
        modules: The client as the environment has it.
        defaults: What the environment of this process says.
    """

    def __init__(self, database: Database, modules: Modules, defaults: AddressSettings) -> None:
        self._database = database
        self._modules = modules
        self._defaults = defaults

    async def newest(self) -> EffectiveConfiguration:
        """What begins now goes by this."""
        return self._under(await versions.load_newest(self._database))

    async def of(self, version: int) -> EffectiveConfiguration:
        """What was begun under a version goes on under it."""
        if version == 0:
            return self._under(NO_VERSION)
        return self._under(await versions.load_version(self._database, version))

    def _under(self, version: OptionsVersion) -> EffectiveConfiguration:
        settings = apply_options(self._defaults, version.options)
        return EffectiveConfiguration(version.version, settings, self._modules.under(settings))


class CurrentModules:
    """The modules as the newest version has them at each call: for work that belongs to no cycle."""

    def __init__(self, configuration: ConfigurationStore) -> None:
        self._configuration = configuration

    async def apply(self, module: Module, operations: Sequence[Operation]) -> list[OperationResult]:
        """See `Modules.apply`."""
        return await (await self._modules()).apply(module, operations)

    async def addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """See `Modules.addresses`."""
        return await (await self._modules()).addresses(module, after, limit)

    async def lookup(self, module: Module, operations: Sequence[Operation]) -> ModuleLookup:
        """See `Modules.lookup`."""
        return await (await self._modules()).lookup(module, operations)

    async def in_flight(self, module: Module, address_ids: Collection[int]) -> set[int]:
        """See `Modules.in_flight`."""
        return await (await self._modules()).in_flight(module, address_ids)

    async def _modules(self) -> Modules:
        return (await self._configuration.newest()).modules
