"""Check listed addresses against the orders of the modules, and purge those that no module needs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence, Set
from typing import Final, Protocol, TypeAlias

from temporalio import activity

from clients.modules import ModuleFailure
from domain.addresses import activity_models
from domain.addresses.activity_models import LogicalDeleteCheckResult, PurgeAddressesInput, PurgeAddressesResult
from domain.addresses.operations import Module, Operation, OperationResult
from domain.addresses.results import (
    IN_FLIGHT_MODULES,
    ListedDelete,
    PurgeOutcome,
    combine_purge_results,
    list_busy_modules,
)
from infra import log, secrets
from infra.address_settings import AddressSettings
from infra.database import Database
from infra.heartbeats import send_heartbeats
from services import addresses
from stores.addresses import logical_deletes

PurgeResults: TypeAlias = dict[Module, OperationResult]

CHECK_BATCH: Final = activity_models.PURGE_MAX
AUTO_PURGE_ACTOR: Final = "auto_purge"


class PurgeCalls(Protocol):
    """The calls to modules that checks and purges need."""

    async def apply(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """Return one result for each operation."""
        ...

    async def list_in_flight(self, module: Module, address_ids: Collection[int], /) -> set[int]:
        """Return those addresses that have orders in flight."""
        ...


class LogicalDeleteActivities:
    """Checks and purges logically deleted addresses.

    Args:
        settings: The settings of the environment; the newest version of the configuration overrides them.
    """

    def __init__(self, database: Database, modules: PurgeCalls, settings: AddressSettings) -> None:
        self._database = database
        self._modules = modules
        self._settings = settings

    @activity.defn(name="address_check")
    async def check(self) -> LogicalDeleteCheckResult:
        """Ask modules about every listed address, and purge the removable ones where that is configured."""
        report = LogicalDeleteCheckResult(checked_at=await self._database.now())
        auto_purge = (await addresses.load_settings(self._database, self._settings)).auto_purge
        last = 0
        async with send_heartbeats(lambda: [last]):
            while page := await logical_deletes.load_listed(self._database, last, CHECK_BATCH):
                last = page[-1].address_id
                report = await self._check_page(report, page, auto_purge=auto_purge)
        log.get(__name__).info("logical_deletes_checked", **report.model_dump(mode="json", exclude={"checked_at"}))
        return report

    @activity.defn(name="address_purge")
    async def purge(self, params: PurgeAddressesInput) -> PurgeAddressesResult:
        """Remove addresses from all modules, unless one has orders in flight at this moment."""
        async with send_heartbeats():
            found = await logical_deletes.find_listed(self._database, params.address_ids)
            return await self._purge_listed(found, params.who, params.reason)

    async def _check_page(
        self, report: LogicalDeleteCheckResult, page: Sequence[ListedDelete], *, auto_purge: bool
    ) -> LogicalDeleteCheckResult:
        checked, silent = await self._ask_modules(page)
        removable = [each for each in checked if each.is_removable]
        purged = (
            await self._purge_listed(removable, AUTO_PURGE_ACTOR, None, asked=True)
            if auto_purge
            else PurgeAddressesResult()
        )
        return report.model_copy(
            update={
                "listed": report.listed + len(checked),
                "removable": report.removable + len(removable) - len(purged.purged) - len(purged.busy),
                "purged": report.purged + len(purged.purged),
                "unanswered": sorted({*report.unanswered, *silent}),
            }
        )

    async def _ask_modules(self, listed: Sequence[ListedDelete]) -> tuple[list[ListedDelete], set[Module]]:
        """Ask the modules, write their answers, and return them with the modules that gave none."""
        ids = [each.address_id for each in listed]
        answers = await asyncio.gather(*(self._in_flight(module, ids) for module in IN_FLIGHT_MODULES))
        in_flight = dict(zip(IN_FLIGHT_MODULES, answers, strict=True))
        checked = [each.update_busy(in_flight) for each in listed]
        await logical_deletes.write_checks(self._database, checked)
        return checked, {module for module, answer in in_flight.items() if answer is None}

    async def _in_flight(self, module: Module, ids: Sequence[int]) -> Set[int] | None:
        try:
            return await self._modules.list_in_flight(module, ids)
        except ModuleFailure:
            # The client has logged why.
            return None

    async def _purge_listed(
        self, listed: Sequence[ListedDelete], who: str, reason: str | None, *, asked: bool = False
    ) -> PurgeAddressesResult:
        """Remove addresses that no module needs; unless `asked`, the modules are asked first."""
        if not listed:
            return PurgeAddressesResult()
        checked = listed if asked else (await self._ask_modules(listed))[0]
        endings = {
            each: PurgeOutcome.BUSY if each.busy else PurgeOutcome.FAILED for each in checked if not each.is_removable
        }
        for each, results in (await self._send_purges([each for each in checked if each.is_removable])).items():
            endings[each] = combine_purge_results(results)
            if endings[each] is PurgeOutcome.BUSY:
                await logical_deletes.write_checks(self._database, [each.add_busy(list_busy_modules(results))])
        purged = [each for each, ending in endings.items() if ending is PurgeOutcome.PURGED]
        await logical_deletes.mark_purged(self._database, purged, who, reason)
        alive = [each for each, ending in endings.items() if ending is PurgeOutcome.ALIVE]
        await logical_deletes.remove_listed(self._database, alive)
        ids = {
            kind: sorted(each.address_id for each, ending in endings.items() if ending is kind) for kind in PurgeOutcome
        }
        return PurgeAddressesResult(**{kind.value: found for kind, found in ids.items()})

    async def _send_purges(self, removable: Sequence[ListedDelete]) -> dict[ListedDelete, PurgeResults]:
        """Send the purges under an attempt id of their own, so that a refused one can be tried again."""
        # Not a timestamp: clocks are set back, databases are restored, and two purges may share a millisecond.
        attempt = secrets.create_token()
        operations = [each.build_purge(attempt) for each in removable]
        answers = await asyncio.gather(*(self._modules.apply(module, operations) for module in Module))
        rows = zip(*answers, strict=True)
        return {each: dict(zip(Module, row, strict=True)) for each, row in zip(removable, rows, strict=True)}
