"""Logical deletes are checked against the orders of modules, and removed when no module needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, select
from temporalio.testing import ActivityEnvironment

from activities.addresses.activities import LogicalDeleteActivities
from clients.modules import ModulesClient
from domain.addresses.activity_models import AddressIdsByPurgeOutcome, LogicalDeleteCheckCounts, PurgeAddressesInput
from domain.addresses.operations import Module
from infra.address_settings import AddressSettings
from infra.database import Database
from sims.oss.scenario import OssAction, OssScenario
from sims.oss.server import Oss
from stores.tables.addresses import AddressAction, LogicalDelete
from tests.support.module_tables import delete, upsert
from tests.support.modules import call_fault, running_modules

pytestmark = pytest.mark.stack

DELETE_SEQ = 60


def build_delete(address_id: int, uprn: int, log_id: int, busy: Module) -> LogicalDelete:
    """A row of the list, as the cycle writes it."""
    flags = {f"{module}_flag": "Y" if module is busy else "N" for module in (Module.OD, Module.WFM, Module.ED)}
    return LogicalDelete.model_validate(
        {"address_id": address_id, "uprn": uprn, "log_id": log_id, "create_date": datetime.now(UTC), **flags}
    )


@dataclass
class PurgeSetup:
    """The modules, the list, and what is done with them."""

    database: Database
    oss: Oss
    client: ModulesClient

    async def delete(self, address_ids: Collection[int], busy: Module = Module.OD) -> None:
        """Create addresses with UPRNs of their own and delete them while one module has orders; list them."""
        self.oss.modules[busy].begin_orders(address_ids)
        for module in Module:
            await self.client.apply_operations(module, [upsert(id_, id_, id_) for id_ in address_ids])
            await self.client.apply_operations(module, [delete(DELETE_SEQ + id_, id_) for id_ in address_ids])
        async with self.database.session() as session:
            session.add_all(build_delete(id_, id_, DELETE_SEQ + id_, busy) for id_ in address_ids)

    async def check(self, **changes: Any) -> LogicalDeleteCheckCounts:
        """One check."""
        return await ActivityEnvironment().run(self._deletes(**changes).check_logical_deletes_and_purge_if_configured)

    async def purge(self, *address_ids: int) -> AddressIdsByPurgeOutcome:
        """What an operator orders."""
        order = PurgeAddressesInput(address_ids=list(address_ids), who="ann", reason="tidy")
        return await ActivityEnvironment().run(self._deletes().purge_addresses, order)

    def _deletes(self, **changes: Any) -> LogicalDeleteActivities:
        return LogicalDeleteActivities(self.database, self.client, AddressSettings(**changes))

    async def rows(self) -> dict[int, LogicalDelete]:
        """The list."""
        async with self.database.session() as session:
            return {row.address_id: row for row in await session.exec(select(LogicalDelete))}

    async def actions(self) -> list[AddressAction]:
        """What was done, by whom."""
        async with self.database.session() as session:
            return list(await session.exec(select(AddressAction).order_by(col(AddressAction.id))))

    def list_kept(self) -> dict[str, list[int]]:
        """The addresses that each module still has."""
        return {name: [state.address_id for state in module.states()] for name, module in self.oss.modules.items()}


@asynccontextmanager
async def running_purges(database: Database, folder: Path) -> AsyncIterator[PurgeSetup]:
    """Modules that take batches."""
    async with running_modules(folder, batch=500, retries=0) as (oss, client):
        yield PurgeSetup(database, oss, client)


async def test_a_check_marks_what_may_be_removed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page; the flags say which module needs an address, and the first time that none did is kept."""
    monkeypatch.setattr("activities.addresses.activities.CHECK_BATCH", 2)
    async with running_purges(database, tmp_path) as here:
        await here.delete(range(1, 6))
        here.oss.modules["od"].end_orders([1, 2, 3])
        here.oss.modules["ed"].begin_orders([3])

        report = await here.check()
        before = (await here.rows())[1].removable_at
        again = await here.check()

        rows = await here.rows()
        assert (report.listed, report.removable, report.purged, report.unanswered) == (5, 2, 0, [])
        assert again.removable == 2
        assert {id_ for id_, row in rows.items() if row.removable_at} == {1, 2}
        assert {id_: (row.od_flag, row.ed_flag) for id_, row in rows.items() if id_ > 2} == {
            3: ("N", "Y"),
            4: ("Y", "N"),
            5: ("Y", "N"),
        }
        assert all(row.checked_at for row in rows.values())
        assert rows[1].removable_at == before
        assert here.list_kept()["od"] == [1, 2, 3, 4, 5]


async def test_what_is_needed_again_is_no_longer_removable(database: Database, tmp_path: Path) -> None:
    """The next check takes the mark back."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1])
        here.oss.modules["od"].end_orders([1])
        await here.check()
        here.oss.modules["wfm"].begin_orders([1])
        await here.check()

        row = (await here.rows())[1]
        assert (row.removable_at, row.wfm_flag, row.od_flag) == (None, "Y", "N")


async def test_an_operator_purges(database: Database, tmp_path: Path) -> None:
    """Gone from every module, and written down; what is still needed stays, what is not listed is no matter."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1, 2])
        here.oss.modules["od"].end_orders([1])

        report = await here.purge(1, 2, 99)

        assert report == AddressIdsByPurgeOutcome(purged=[1], in_use=[2])
        assert here.list_kept() == {"ed": [], "im": [], "wfm": [], "od": [2]}
        rows = await here.rows()
        assert (rows[1].purged_at is not None, rows[2].purged_at, rows[2].od_flag) == (True, None, "Y")
        (action,) = await here.actions()
        assert (action.who, action.action, action.address_id, action.reason) == ("ann", "purge", 1, "tidy")
        assert await here.purge(1) == AddressIdsByPurgeOutcome()


async def test_orders_that_come_at_the_last_moment_are_seen(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all modules were asked, and before they remove: each looks in the transaction that would."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1])
        here.oss.modules["od"].end_orders([1])
        asked = ModulesClient.list_addresses_with_open_orders

        async def and_then(client: ModulesClient, module: Module, ids: Collection[int]) -> set[int]:
            told = await asked(client, module, ids)
            here.oss.modules["od"].begin_orders([1])
            return told

        monkeypatch.setattr(ModulesClient, "list_addresses_with_open_orders", and_then)
        report = await here.purge(1)

        assert report == AddressIdsByPurgeOutcome(in_use=[1])
        assert here.list_kept()["od"] == [1]
        row = (await here.rows())[1]
        assert (row.purged_at, row.removable_at, row.od_flag) == (None, None, "Y")


async def test_an_address_that_lives_again_is_not_purged(database: Database, tmp_path: Path) -> None:
    """Even if the list does not know yet; then it knows."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1])
        here.oss.modules["od"].end_orders([1])
        for module in Module:
            await here.client.apply_operations(module, [upsert(900, 1, 1, street="again")])

        assert await here.purge(1) == AddressIdsByPurgeOutcome(superseded=[1])
        assert here.list_kept() == {module.value: [1] for module in Module}
        assert 1 not in await here.rows()


async def test_a_check_without_an_answer_takes_no_mark_back(database: Database, tmp_path: Path) -> None:
    """What was removable stays so, from the same moment on; only a module that needs it again changes that."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1, 2])
        here.oss.modules["od"].end_orders([1, 2])
        await here.check()
        before = await here.rows()
        here.oss.modules["ed"].begin_orders([2])
        here.oss.set(OssScenario(rules=(call_fault(OssAction.ERROR, modules=frozenset({"wfm"})),)))

        report = await here.check()

        after = await here.rows()
        assert (report.unanswered, report.removable) == ([Module.WFM], 0)
        assert before[1].removable_at is not None
        assert (after[1].removable_at, after[1].checked_at) == (before[1].removable_at, before[1].checked_at)
        assert (after[2].removable_at, after[2].ed_flag) == (None, "Y")
        assert await here.purge(1) == AddressIdsByPurgeOutcome(failed=[1])
        assert (await here.rows())[1].removable_at == before[1].removable_at


async def test_a_module_that_says_nothing_holds_back(database: Database, tmp_path: Path) -> None:
    """Nothing is guessed: neither marked nor removed, and the report names it."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1])
        here.oss.modules["od"].end_orders([1])
        here.oss.set(OssScenario(rules=(call_fault(OssAction.ERROR, modules=frozenset({"wfm"})),)))

        report = await here.check(auto_purge=True)

        row = (await here.rows())[1]
        assert (report.unanswered, report.removable, row.checked_at, row.removable_at) == ([Module.WFM], 0, None, None)
        assert await here.purge(1) == AddressIdsByPurgeOutcome(failed=[1])
        assert here.list_kept()["od"] == [1]


async def test_a_purge_that_broke_off_is_finished_by_the_next(database: Database, tmp_path: Path) -> None:
    """Three modules answered, the fourth did not: it stays listed until that one has answered, too."""
    async with running_purges(database, tmp_path) as here:
        await here.delete([1])
        here.oss.modules["od"].end_orders([1])
        # The first call to OD asks for its orders, the second is the purge.
        lost = call_fault(OssAction.LOST, modules=frozenset({"od"}), skip=1)
        here.oss.set(OssScenario(rules=(lost,)))

        assert await here.purge(1) == AddressIdsByPurgeOutcome(failed=[1])
        here.oss.set(OssScenario())
        assert await here.purge(1) == AddressIdsByPurgeOutcome(purged=[1])
        assert here.list_kept()["od"] == []
        assert len(await here.actions()) == 1


async def test_checks_purge_where_that_is_set(database: Database, tmp_path: Path) -> None:
    """What is removable goes at once; addresses that had one UPRN in turn go together."""
    async with running_purges(database, tmp_path) as here:
        here.oss.modules["od"].begin_orders([1, 2])
        for seq, address_id in ((1, 1), (3, 2)):
            await here.client.apply_operations(Module.OD, [upsert(seq, 7, address_id)])
            await here.client.apply_operations(Module.OD, [delete(seq + 1, 7)])
        async with database.session() as session:
            session.add_all([build_delete(1, 7, 2, Module.OD), build_delete(2, 7, 4, Module.OD)])
        here.oss.modules["od"].end_orders([1, 2])

        report = await here.check(auto_purge=True)

        assert (report.listed, report.removable, report.purged) == (2, 0, 2)
        assert here.list_kept()["od"] == []
        assert [(action.who, action.address_id) for action in await here.actions()] == [
            ("auto_purge", 1),
            ("auto_purge", 2),
        ]
        assert (await here.check(auto_purge=True)).listed == 0


async def test_no_two_purges_have_one_id(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of an address that was removed from the list and listed again at the same clock time."""
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)

    async def stand_still(_: Database) -> datetime:
        return noon

    monkeypatch.setattr(Database, "now", stand_still)
    async with running_purges(database, tmp_path) as here:
        for seq in (100, 200):
            here.oss.modules["od"].begin_orders([1])
            for module in Module:
                await here.client.apply_operations(module, [upsert(seq, 1, 1)])
                await here.client.apply_operations(module, [delete(seq + 1, 1)])
            async with database.session() as session:
                await session.merge(build_delete(1, 1, seq + 1, Module.OD))
            here.oss.modules["od"].end_orders([1])
            assert await here.purge(1) == AddressIdsByPurgeOutcome(purged=[1])
            async with database.session() as session:
                await session.delete(await session.get_one(LogicalDelete, 1))

        sent = [op_id for call in here.oss.modules["od"].calls for op_id in call.op_ids if op_id.startswith("purge:")]
        assert len(sent) == len(set(sent)) == 2
