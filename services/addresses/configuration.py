"""What is in force: the newest version of what operators set, over what the environment of this process says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from clients.modules import Modules
from domain.addresses.config import Options
from domain.addresses.operations import AddressPage, Lookup, Module, Operation, OperationResult
from infra.database import Database
from infra.settings import AddressSettings, ModulesSettings
from stores.addresses import configuration as versions
from stores.addresses.configuration import UNSET, Version


@dataclass(frozen=True, slots=True)
class InForce:
    """What a cycle goes by, from its beginning to its end."""

    version: int
    settings: AddressSettings
    modules: Modules


def effective(defaults: AddressSettings, options: Options) -> AddressSettings:
    """The settings under these options."""
    modules = {
        module.value: getattr(defaults.modules, module).model_copy(update=options.of(module).said) for module in Module
    }
    said = {**options.said, "modules": ModulesSettings(**modules)}
    return defaults.model_copy(update=said)


async def in_force(database: Database, defaults: AddressSettings) -> AddressSettings:
    """The settings of this moment."""
    return effective(defaults, (await versions.read_newest(database)).options)


class Configuration:
    """The versions, and a client of the modules for each.

    Args:
        modules: The client as the environment has it.
        defaults: What the environment of this process says.
    """

    def __init__(self, database: Database, modules: Modules, defaults: AddressSettings) -> None:
        self._database = database
        self._modules = modules
        self._defaults = defaults

    async def newest(self) -> InForce:
        """What begins now goes by this."""
        return self._under(await versions.read_newest(self._database))

    async def of(self, version: int) -> InForce:
        """What was begun under a version goes on under it."""
        if version == 0:
            return self._under(UNSET)
        return self._under(await versions.read(self._database, version))

    def _under(self, version: Version) -> InForce:
        settings = effective(self._defaults, version.options)
        return InForce(version.version, settings, self._modules.under(settings))


class CurrentModules:
    """The modules as the newest version has them at each call: for work that belongs to no cycle."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def apply(self, module: Module, operations: Sequence[Operation]) -> list[OperationResult]:
        """See `Modules.apply`."""
        return await (await self._modules()).apply(module, operations)

    async def addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """See `Modules.addresses`."""
        return await (await self._modules()).addresses(module, after, limit)

    async def lookup(self, module: Module, operations: Sequence[Operation]) -> Lookup:
        """See `Modules.lookup`."""
        return await (await self._modules()).lookup(module, operations)

    async def in_flight(self, module: Module, address_ids: Collection[int]) -> set[int]:
        """See `Modules.in_flight`."""
        return await (await self._modules()).in_flight(module, address_ids)

    async def _modules(self) -> Modules:
        return (await self._configuration.newest()).modules
