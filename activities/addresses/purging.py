"""Purging: listed addresses are checked against the orders of modules, and those that nobody needs are removed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence, Set
from datetime import datetime
from typing import Final, Protocol, TypeAlias

import asyncpg
from temporalio import activity

from clients.modules import ModuleFailure
from domain.addresses import logical
from domain.addresses.logical import CheckReport, Ending, Listed, PurgeOrder, PurgeReport
from domain.addresses.operations import Module, Operation, OperationResult
from domain.addresses.verdicts import IN_FLIGHT_FLAGS
from infra import log, tokens
from infra.database import Database
from infra.heartbeats import beating
from infra.settings import AddressSettings
from services.addresses import configuration

Results: TypeAlias = dict[Module, OperationResult]

BATCH: Final = logical.PURGE_MAX
AUTO: Final = "auto_purge"

_COLUMNS: Final = "address_id, uprn, log_id, od_flag, wfm_flag, ed_flag"
_PAGE: Final = f"""
    SELECT {_COLUMNS} FROM addr_logical_deletes WHERE purged_at IS NULL AND address_id > $1 ORDER BY address_id LIMIT $2
    """  # noqa: S608 - names of ours
_NAMED: Final = f"""
    SELECT {_COLUMNS} FROM addr_logical_deletes WHERE purged_at IS NULL AND address_id = ANY($1::bigint[])
    ORDER BY address_id
    """  # noqa: S608 - names of ours
# A row that lives again, or was deleted anew while modules were asked, is not the one that they were asked about.
_NOTE: Final = """
    UPDATE addr_logical_deletes AS listed SET
        od_flag = told.od, wfm_flag = told.wfm, ed_flag = told.ed,
        checked_at = CASE WHEN told.is_checked THEN now() ELSE listed.checked_at END,
        removable_at = CASE WHEN told.removable THEN coalesce(listed.removable_at, now()) END
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::boolean[])
        AS told (address_id, log_id, od, wfm, ed, is_checked, removable)
    WHERE listed.address_id = told.address_id AND listed.log_id = told.log_id AND listed.purged_at IS NULL
    """
_PURGED: Final = """
    WITH purged AS (
        UPDATE addr_logical_deletes AS listed SET purged_at = now()
        FROM unnest($1::bigint[], $2::bigint[]) AS told (address_id, log_id)
        WHERE listed.address_id = told.address_id AND listed.log_id = told.log_id AND listed.purged_at IS NULL
        RETURNING listed.address_id, listed.log_id
    )
    INSERT INTO addr_audit (who, action, log_id, address_id, reason)
    SELECT $3, 'purge', log_id, address_id, $4 FROM purged
    """

_FORGET: Final = """
    DELETE FROM addr_logical_deletes AS listed USING unnest($1::bigint[], $2::bigint[]) AS told (address_id, log_id)
    WHERE listed.address_id = told.address_id AND listed.log_id = told.log_id AND listed.purged_at IS NULL
    """


class Askable(Protocol):
    """Who speaks to the modules."""

    async def apply(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """One result for each operation."""
        ...

    async def in_flight(self, module: Module, address_ids: Collection[int], /) -> set[int]:
        """Those that have orders in flight."""
        ...


class LogicalDeletes:
    """What keeps the list of logical deletes short.

    Args:
        settings: What the environment says; the newest version of the configuration goes before it.
    """

    def __init__(self, database: Database, modules: Askable, settings: AddressSettings) -> None:
        self._database = database
        self._modules = modules
        self._settings = settings

    @activity.defn(name="address_check")
    async def check(self) -> CheckReport:
        """Ask modules about every listed address; purge what is removable, where that is set."""
        report = CheckReport(checked_at=await self._now())
        auto_purge = (await configuration.in_force(self._database, self._settings)).auto_purge
        last = 0
        async with beating(lambda: [last]):
            while page := await self._page(last):
                last = page[-1].address_id
                report = await self._checked(report, page, auto_purge=auto_purge)
        log.get(__name__).info("logical_deletes_checked", **report.model_dump(mode="json", exclude={"checked_at"}))
        return report

    @activity.defn(name="address_purge")
    async def purge(self, order: PurgeOrder) -> PurgeReport:
        """Remove addresses from all modules, unless one has orders in flight at this moment."""
        async with beating():
            async with self._database.connection() as connection:
                found = [_listed(row) for row in await connection.fetch(_NAMED, order.address_ids)]
            return await self._purged(found, order.who, order.reason)

    async def _checked(self, report: CheckReport, page: Sequence[Listed], *, auto_purge: bool) -> CheckReport:
        checked, silent = await self._asked(page)
        removable = [each for each in checked if each.removable]
        purged = await self._purged(removable, AUTO, None, asked=True) if auto_purge else PurgeReport()
        return report.model_copy(
            update={
                "listed": report.listed + len(checked),
                "removable": report.removable + len(removable) - len(purged.purged) - len(purged.busy),
                "purged": report.purged + len(purged.purged),
                "unanswered": sorted({*report.unanswered, *silent}),
            }
        )

    async def _asked(self, listed: Sequence[Listed]) -> tuple[list[Listed], set[Module]]:
        """What is known of these now, written down, and which modules gave no answer."""
        ids = [each.address_id for each in listed]
        answers = await asyncio.gather(*(self._in_flight(module, ids) for module in IN_FLIGHT_FLAGS))
        told = dict(zip(IN_FLIGHT_FLAGS, answers, strict=True))
        checked = [each.checked(told) for each in listed]
        await self._note(checked)
        return checked, {module for module, answer in told.items() if answer is None}

    async def _in_flight(self, module: Module, ids: Sequence[int]) -> Set[int] | None:
        try:
            return await self._modules.in_flight(module, ids)
        except ModuleFailure:
            # The client has logged why. What it would have said is not guessed.
            return None

    async def _purged(
        self, listed: Sequence[Listed], who: str, reason: str | None, *, asked: bool = False
    ) -> PurgeReport:
        """Ask the modules, unless that was just done, and remove what none of them needs."""
        if not listed:
            return PurgeReport()
        checked = listed if asked else (await self._asked(listed))[0]
        endings = {each: Ending.BUSY if each.busy else Ending.FAILED for each in checked if not each.removable}
        for each, results in (await self._sent([each for each in checked if each.removable])).items():
            endings[each] = logical.ending(results)
            if endings[each] is Ending.BUSY:
                await self._note([each.needed_by(logical.needed_by(results))])
        await self._note_purged([each for each, ending in endings.items() if ending is Ending.PURGED], who, reason)
        await self._forget([each for each, ending in endings.items() if ending is Ending.ALIVE])
        ids = {kind: sorted(each.address_id for each, ending in endings.items() if ending is kind) for kind in Ending}
        return PurgeReport(**{kind.value: found for kind, found in ids.items()})

    async def _sent(self, removable: Sequence[Listed]) -> dict[Listed, Results]:
        """What each module says to the purges. An id of its own for each try: what was refused may be tried again."""
        # Not a time: clocks are set back, databases go back to a backup, and two purges may meet in a millisecond.
        attempt = tokens.token()
        operations = [each.purge(attempt) for each in removable]
        answers = await asyncio.gather(*(self._modules.apply(module, operations) for module in Module))
        rows = zip(*answers, strict=True)
        return {each: dict(zip(Module, row, strict=True)) for each, row in zip(removable, rows, strict=True)}

    async def _page(self, after: int) -> list[Listed]:
        async with self._database.connection() as connection:
            return [_listed(row) for row in await connection.fetch(_PAGE, after, BATCH)]

    async def _note(self, checked: Sequence[Listed]) -> None:
        if not checked:
            return
        flags = [["Y" if module in each.busy else "N" for each in checked] for module in IN_FLIGHT_FLAGS]
        async with self._database.connection() as connection:
            await connection.execute(
                _NOTE,
                [each.address_id for each in checked],
                [each.log_id for each in checked],
                *flags,
                [each.is_checked for each in checked],
                [each.removable for each in checked],
            )

    async def _note_purged(self, gone: Sequence[Listed], who: str, reason: str | None) -> None:
        if not gone:
            return
        async with self._database.connection() as connection:
            await connection.execute(
                _PURGED, [each.address_id for each in gone], [each.log_id for each in gone], who, reason
            )

    async def _forget(self, alive: Sequence[Listed]) -> None:
        """They are no logical deletes any more; one that was deleted anew is listed by that delete."""
        if not alive:
            return
        async with self._database.connection() as connection:
            await connection.execute(_FORGET, [each.address_id for each in alive], [each.log_id for each in alive])

    async def _now(self) -> datetime:
        async with self._database.connection() as connection:
            now: datetime = await connection.fetchval("SELECT now()")
            return now


def _listed(row: asyncpg.Record) -> Listed:
    busy = frozenset(module for module in IN_FLIGHT_FLAGS if row[f"{module}_flag"] == "Y")
    return Listed(row["address_id"], row["uprn"], row["log_id"], busy)
