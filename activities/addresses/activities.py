"""Activities of the cycle, of logical deletes and of housekeeping."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence, Set
from datetime import timedelta
from functools import partial
from typing import Final, Protocol, TypeAlias

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities.addresses import delivery
from clients.modules import ModuleFailure
from domain.addresses import activity_models, names
from domain.addresses.activity_models import (
    AddressIdsByPurgeOutcome,
    AppliedMessageCounts,
    ApplyStepInput,
    CyclePlanResult,
    EndedCycleToArchive,
    IdOfCycleToBegin,
    ListWaitingSwapsInput,
    LogicalDeleteCheckCounts,
    PurgeAddressesInput,
    StepsOfWaitingSwaps,
)
from domain.addresses.operations import Module, Operation, OperationResult
from domain.addresses.results import (
    IN_FLIGHT_MODULES,
    ListedLogicalDelete,
    PurgeOutcome,
    decide_purge_outcome,
    list_modules_with_orders_in_flight,
)
from infra import log, metrics, outages, secrets
from infra.address_settings import AddressSettings
from infra.database import Database
from infra.heartbeats import send_heartbeats_during_block
from infra.housekeeping import remove_in_batches_within_time
from services import addresses
from services.addresses import ConfigurationLoader
from services.services import Services
from stores import pauses
from stores.addresses import cycle, logical_deletes

_log = log.get(__name__)


class AddressCycleActivities:
    """Loads, applies and archives the messages of a cycle."""

    def __init__(self, database: Database, engine: Client, configuration: ConfigurationLoader) -> None:
        self._database = database
        self._engine = engine
        self._configuration = configuration

    @activity.defn(name="address_load")
    async def resume_or_begin_cycle_unless_paused(self, params: IdOfCycleToBegin) -> CyclePlanResult:
        """Load the messages of a cycle; none while the schedule is paused, which also ends a running cycle's run."""
        async with send_heartbeats_during_block():
            if await self._is_system_or_cycle_paused():
                return CyclePlanResult(paused=True)
            config = await self._configuration.load_newest()
            plan = await cycle.resume_or_begin_cycle(self._database, config.settings, params.cycle_id)
            if not plan.loaded:
                await delivery.confirm_unconfirmed_messages(self._database, config.modules)
                if await delivery.allow_retry_of_swaps_no_longer_missing_side(
                    self._database, config.settings.failed_cycles_max, config.modules
                ):
                    plan = await cycle.resume_or_begin_cycle(self._database, config.settings, params.cycle_id)
                # Messages that operators skipped are done without a cycle.
                await cycle.move_done_messages_to_history(self._database)
            return plan.model_copy(update={"config_version": config.version})

    @activity.defn(name="address_apply")
    async def apply_step_and_count_endings(self, params: ApplyStepInput) -> AppliedMessageCounts:
        """Apply some messages in all four modules, and write the results."""
        async with send_heartbeats_during_block():
            config = await self._configuration.load_options_version(params.config_version)
            applied = await delivery.check_send_and_record_step(self._database, config.settings, config.modules, params)
        for outcome in ("done", "failed", "superseded"):
            metrics.ADDRESS_ENDINGS.labels(outcome).inc(getattr(applied, outcome))
        if applied.failed:
            _log.warning(
                "address_messages_failed",
                cycle=params.cycle_id,
                phase=params.phase.value,
                failed=applied.failed,
                done=applied.done,
            )
        return applied

    @activity.defn(name="address_waiting")
    async def list_waiting_swaps(self, params: ListWaitingSwapsInput) -> StepsOfWaitingSwaps:
        """List the swaps of the cycle to be tried once more."""
        async with send_heartbeats_during_block():
            config = await self._configuration.load_options_version(params.config_version)
            return StepsOfWaitingSwaps(
                steps=await cycle.list_unfinished_swaps(self._database, config.settings, params.cycle_id)
            )

    @activity.defn(name="address_archive")
    async def confirm_and_archive_messages(self, ended: EndedCycleToArchive | None = None) -> int:
        """Ask about unconfirmed messages, then move done messages to the history.

        Args:
            ended: The cycle; None where a workflow of an earlier version calls.
        """
        async with send_heartbeats_during_block():
            await delivery.confirm_unconfirmed_messages(
                self._database, (await self._configuration.load_newest()).modules
            )
            archived = await cycle.move_done_messages_to_history(self._database)
        if ended is not None:
            metrics.ADDRESS_CYCLE_SECONDS.observe(ended.seconds)
            counts = ended.totals.model_dump(exclude={"cycles"})
            _log.info("address_cycle_ended", cycle=ended.cycle_id, **counts, archived=archived, seconds=ended.seconds)
        return archived

    async def _is_system_or_cycle_paused(self) -> bool:
        if await pauses.is_system_paused(self._database, names.SYSTEM):
            return True
        try:
            schedule = await self._engine.get_schedule_handle(names.CYCLE_SCHEDULE).describe()
        except RPCError as error:
            if outages.is_workflow_or_schedule_missing(error):
                return False
            raise
        return schedule.schedule.state.paused


PurgeResults: TypeAlias = dict[Module, OperationResult]

CHECK_BATCH: Final = activity_models.PURGE_MAX
AUTO_PURGE_ACTOR: Final = "auto_purge"


class ModulesClientForChecksAndPurges(Protocol):
    """The calls to modules that checks and purges need."""

    async def apply_operations(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """Return one result for each operation."""
        ...

    async def list_addresses_with_open_orders(self, module: Module, address_ids: Collection[int], /) -> set[int]:
        """Return those addresses that have orders in flight."""
        ...


class LogicalDeleteActivities:
    """Checks and purges logically deleted addresses.

    Args:
        settings: The settings of the environment; the newest version of the configuration overrides them.
    """

    def __init__(self, database: Database, modules: ModulesClientForChecksAndPurges, settings: AddressSettings) -> None:
        self._database = database
        self._modules = modules
        self._settings = settings

    @activity.defn(name="address_check")
    async def check_logical_deletes_and_purge_if_configured(self) -> LogicalDeleteCheckCounts:
        """Ask modules about every listed address, and purge the removable ones where that is configured."""
        report = LogicalDeleteCheckCounts(checked_at=await self._database.now())
        auto_purge = (await addresses.load_effective_settings(self._database, self._settings)).auto_purge
        last = 0
        async with send_heartbeats_during_block(lambda: [last]):
            while page := await logical_deletes.load_unpurged_page(self._database, last, CHECK_BATCH):
                last = page[-1].address_id
                report = await self._check_and_purge_page(report, page, auto_purge=auto_purge)
        _log.info("logical_deletes_checked", **report.model_dump(mode="json", exclude={"checked_at"}))
        return report

    @activity.defn(name="address_purge")
    async def purge_addresses(self, params: PurgeAddressesInput) -> AddressIdsByPurgeOutcome:
        """Remove addresses from all modules, unless one has orders in flight at this moment."""
        async with send_heartbeats_during_block():
            found = await logical_deletes.find_unpurged(self._database, params.address_ids)
            return await self._check_and_purge_unneeded(found, params.who, params.reason)

    async def _check_and_purge_page(
        self, report: LogicalDeleteCheckCounts, page: Sequence[ListedLogicalDelete], *, auto_purge: bool
    ) -> LogicalDeleteCheckCounts:
        checked, silent = await self._mark_open_orders_and_save_all(page)
        removable = [each for each in checked if each.is_removable]
        purged = (
            await self._check_and_purge_unneeded(removable, AUTO_PURGE_ACTOR, None, is_already_checked=True)
            if auto_purge
            else AddressIdsByPurgeOutcome()
        )
        return report.model_copy(
            update={
                "listed": report.listed + len(checked),
                "removable": report.removable + len(removable) - len(purged.purged) - len(purged.in_use),
                "purged": report.purged + len(purged.purged),
                "unanswered": sorted({*report.unanswered, *silent}),
            }
        )

    async def _mark_open_orders_and_save_all(
        self, listed: Sequence[ListedLogicalDelete]
    ) -> tuple[list[ListedLogicalDelete], set[Module]]:
        """Ask the modules, write their answers, and return them with the modules that gave none."""
        ids = [each.address_id for each in listed]
        answers = await asyncio.gather(
            *(self._list_addresses_with_open_orders_or_none(module, ids) for module in IN_FLIGHT_MODULES)
        )
        in_flight = dict(zip(IN_FLIGHT_MODULES, answers, strict=True))
        checked = [each.with_orders_in_flight_as_checked(in_flight) for each in listed]
        await logical_deletes.write_check_results(self._database, checked)
        return checked, {module for module, answer in in_flight.items() if answer is None}

    async def _list_addresses_with_open_orders_or_none(self, module: Module, ids: Sequence[int]) -> Set[int] | None:
        try:
            return await self._modules.list_addresses_with_open_orders(module, ids)
        except ModuleFailure:
            # The client has logged why.
            return None

    async def _check_and_purge_unneeded(
        self, listed: Sequence[ListedLogicalDelete], who: str, reason: str | None, *, is_already_checked: bool = False
    ) -> AddressIdsByPurgeOutcome:
        """Remove addresses that no module needs; ask the modules first unless they were asked already."""
        if not listed:
            return AddressIdsByPurgeOutcome()
        checked = listed if is_already_checked else (await self._mark_open_orders_and_save_all(listed))[0]
        endings = {
            each: PurgeOutcome.IN_USE if each.busy else PurgeOutcome.FAILED for each in checked if not each.is_removable
        }
        for each, results in (await self._send_purges([each for each in checked if each.is_removable])).items():
            endings[each] = decide_purge_outcome(results)
            if endings[each] is PurgeOutcome.IN_USE:
                await logical_deletes.write_check_results(
                    self._database, [each.with_more_busy_modules(list_modules_with_orders_in_flight(results))]
                )
        purged = [each for each, ending in endings.items() if ending is PurgeOutcome.PURGED]
        await logical_deletes.mark_purged_with_audit_entry(self._database, purged, who, reason)
        superseded = [each for each, ending in endings.items() if ending is PurgeOutcome.SUPERSEDED]
        await logical_deletes.remove_revived_from_logical_deletes(self._database, superseded)
        ids = {
            kind: sorted(each.address_id for each, ending in endings.items() if ending is kind) for kind in PurgeOutcome
        }
        return AddressIdsByPurgeOutcome(**{kind.value: found for kind, found in ids.items()})

    async def _send_purges(self, removable: Sequence[ListedLogicalDelete]) -> dict[ListedLogicalDelete, PurgeResults]:
        """Send the purges under an attempt id of their own, so that a refused one can be tried again."""
        # Not a timestamp: clocks are set back, databases are restored, and two purges may share a millisecond.
        attempt = secrets.create_random_token()
        operations = [each.build_purge_operation(attempt) for each in removable]
        answers = await asyncio.gather(*(self._modules.apply_operations(module, operations) for module in Module))
        rows = zip(*answers, strict=True)
        return {each: dict(zip(Module, row, strict=True)) for each, row in zip(removable, rows, strict=True)}


DELETE_BATCH: Final = 10_000


class AddressHousekeeping:
    """Deletes archived messages, keys and quarantined messages after retention."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._retention = timedelta(days=services.settings.addresses.kept_days)

    @activity.defn(name=names.PURGE_LOG_ACTIVITY)
    async def delete_expired_rows_of_log(self) -> None:
        """Delete what is past retention, in batches."""
        purged = {table: await self._delete_expired_rows(table) for table in cycle.EXPIRING_TABLES}
        if any(purged.values()):
            _log.info("address_history_deleted", **purged)

    async def _delete_expired_rows(self, table: str) -> int:
        return await remove_in_batches_within_time(
            partial(cycle.delete_expired_rows, self._database, table, self._retention), DELETE_BATCH
        )
