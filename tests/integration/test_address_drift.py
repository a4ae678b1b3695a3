"""The comparison: what modules have differently is found, explained from the log, and written into a workbook."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from temporalio.testing import ActivityEnvironment

from activities.addresses import drift
from activities.addresses.drift import ComparisonActivities
from clients.modules import ModuleFailure, ModulesClient
from domain.addresses import names
from domain.addresses.activity_models import ComparisonIdInput, ModuleComparisonCounts
from domain.addresses.operations import AddressPage, Module
from infra.database import Database
from infra.objects import ObjectStore
from sims.oss.scenario import OssAction
from stores.tables.addresses import AddressMessage, ArchivedMessage
from tests.support.module_tables import swap, upsert
from tests.support.modules import call_fault, running_modules

pytestmark = pytest.mark.stack

ORDER = ComparisonIdInput(comparison_id="20261120T120000Z")
ADDRESSES = 30


async def fill(client: ModulesClient) -> None:
    """The same addresses everywhere: UPRN n is address 100 + n."""
    for module in Module:
        await client.apply_operations(
            module, [upsert(seq, seq, 100 + seq, street=seq) for seq in range(1, ADDRESSES + 1)]
        )


def sheet(book: bytes, name: str) -> list[dict[str, Any]]:
    """A sheet's rows."""
    header, *rows = openpyxl.load_workbook(io.BytesIO(book))[name].iter_rows(values_only=True)
    return [dict(zip(map(str, header), row, strict=True)) for row in rows]


def message(number: int, uprn: int, **more: Any) -> dict[str, Any]:
    """A row of the log or of its history."""
    return {"topic": "createUpdateInfinityAddress", "uprn_1": uprn, "msg_no": str(number), **more}


async def test_modules_that_agree_have_no_drift(database: Database, objects: ObjectStore, tmp_path: Path) -> None:
    """The report counts what was compared."""
    async with running_modules(tmp_path, batch=500) as (_, client):
        await fill(client)
        report: ModuleComparisonCounts = await ActivityEnvironment().run(
            ComparisonActivities(database, objects, client).compare_modules_and_write_workbook, ORDER
        )

    assert (report.compared, report.different, report.in_workbook) == (ADDRESSES, 0, 0)
    assert report.uprns_by_module == dict.fromkeys(Module, ADDRESSES)
    assert sheet(await objects.get(report.key), "addresses") == []


async def test_each_difference_is_found_and_explained(database: Database, objects: ObjectStore, tmp_path: Path) -> None:
    """With what every module has, the message that would mend it, and one that is still under way."""
    async with database.session() as session:
        session.add(ArchivedMessage(id=901, proc_flag="Y", **message(1, 1)))
        session.add(ArchivedMessage(id=902, proc_flag="Y", **message(2, 1)))
        session.add(AddressMessage(proc_flag="N", **message(3, 2)))
    async with running_modules(tmp_path, batch=500) as (oss, client):
        await fill(client)
        oss.modules["od"].forget([101])
        oss.modules["wfm"].spoil([102])
        await client.apply_operations(Module.IM, [swap(50, 3, 4)])

        report: ModuleComparisonCounts = await ActivityEnvironment().run(
            ComparisonActivities(database, objects, client).compare_modules_and_write_workbook, ORDER
        )

    assert (report.different, report.presence_differs, report.address_id_differs, report.record_differs) == (4, 1, 2, 3)
    assert (report.with_unfinished_message, report.uprns_by_module[Module.OD], report.compared) == (
        1,
        ADDRESSES - 1,
        ADDRESSES,
    )
    manifest = await objects.get(names.build_comparison_manifest_key(ORDER.comparison_id))
    assert ModuleComparisonCounts.model_validate_json(manifest) == report
    book = await objects.get(report.key)
    rows = {row["uprn"]: row for row in sheet(book, "addresses")}
    assert {row["figure"]: row["value"] for row in sheet(book, "comparison")}["different"] == 4
    assert [rows[id_]["differs in"] for id_ in sorted(rows)] == [
        "presence",
        "record",
        *["address_id, record"] * 2,
    ]
    assert (rows["1"]["od address_id"], rows["1"]["ed address_id"], rows["1"]["last message"]) == (None, "101", "902")
    assert rows["2"]["open message"]
    assert rows["2"]["wfm record"] != rows["2"]["ed record"] == rows["2"]["od record"]
    assert (rows["3"]["im address_id"], rows["3"]["ed address_id"]) == ("104", "103")


async def test_what_agrees_at_the_second_look_did_not_differ(
    database: Database, objects: ObjectStore, tmp_path: Path
) -> None:
    """Modules are read while cycles run."""
    async with running_modules(tmp_path, batch=500) as (_, client):
        await fill(client)
        for module in (Module.ED, Module.IM, Module.WFM):
            await client.apply_operations(module, [swap(50, 3, 4)])

        class Late:
            """Applies the swap in the last module when all were read."""

            async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
                if limit < drift.SCAN_PAGE:
                    await client.apply_operations(Module.OD, [swap(50, 3, 4)])
                return await client.list_addresses(module, after, limit)

        report: ModuleComparisonCounts = await ActivityEnvironment().run(
            ComparisonActivities(database, objects, Late()).compare_modules_and_write_workbook, ORDER
        )

    assert (report.compared, report.different, report.address_id_differs, report.in_workbook) == (ADDRESSES, 0, 0, 0)


async def test_more_differences_than_fit_are_counted(
    database: Database, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workbook has the first of them."""
    monkeypatch.setattr(drift, "DIFFERENCES_MAX", 5)
    async with running_modules(tmp_path, batch=500) as (oss, client):
        await fill(client)
        oss.modules["ed"].spoil(range(111, 121))
        report: ModuleComparisonCounts = await ActivityEnvironment().run(
            ComparisonActivities(database, objects, client).compare_modules_and_write_workbook, ORDER
        )

    assert (report.different, report.in_workbook, report.record_differs) == (10, 5, 10)
    assert [row["uprn"] for row in sheet(await objects.get(report.key), "addresses")] == ["11", "12", "13", "14", "15"]


async def test_a_module_that_is_away_makes_no_report(database: Database, objects: ObjectStore, tmp_path: Path) -> None:
    """It would look as if it had lost everything."""
    async with running_modules(tmp_path, call_fault(OssAction.ERROR, modules=frozenset({"od"}))) as (_, client):
        with pytest.raises(ModuleFailure, match="Module od answered GET"):
            await ActivityEnvironment().run(
                ComparisonActivities(database, objects, client).compare_modules_and_write_workbook, ORDER
            )

    assert await objects.list("addresses-comparisons/") == []
