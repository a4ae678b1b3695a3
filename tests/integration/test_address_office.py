"""Operators pause cycles, care for logical deletes and have modules compared, through the API and a worker."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pandas as pd
import pytest

from clients.modules import ModulesClient
from domain.addresses import names
from domain.addresses.messages import PublishedMessage, Topic
from domain.addresses.operations import Module
from infra import temporal
from infra.database import Database
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssRule, OssScenario
from sims.oss.server import Oss, running_oss
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.integration.test_address_purging import build_delete
from tests.support import modules as module_peers
from tests.support.api import ApiClient, Reply, running_api
from tests.support.module_tables import upsert
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.addresses import handle

pytestmark = pytest.mark.stack

SIGNED = {"who": "ann", "reason": "tidying up"}
DELETES = "/v1/addresses/logical-deletes"
COMPARISONS = "/v1/addresses/comparisons"


@dataclass(frozen=True)
class AddressOperator:
    """The API, a worker of the queue of addresses, and the modules."""

    api_client: ApiClient
    oss: Oss

    async def post(self, path: str, **body: Any) -> Reply:
        """Order something."""
        return await self.api_client.as_admin("POST", path, **({"json": body} if body else {}))

    async def get(self, path: str, **query: str) -> Reply:
        """Ask for something."""
        return await self.api_client.as_admin("GET", path, params=query)

    async def wait_for_end(self, path: str) -> dict[str, Any]:
        """What was ordered, once it has ended."""

        async def end() -> dict[str, Any]:
            body: dict[str, Any] = (await self.get(path)).body
            return body if body["state"] != "running" else {}

        return await eventually(end)


@asynccontextmanager
async def office(settings: Settings, folder: Path) -> AsyncIterator[AddressOperator]:
    """Modules that take batches."""
    async with running_oss(folder) as oss:
        addresses = module_peers.module_settings(oss.base, folder, batch=500, retries=0)
        tuned = settings.model_copy(update={"addresses": addresses})
        async with running_worker(tuned, [names.QUEUE]), running_api(tuned) as api_client:
            yield AddressOperator(api_client, oss)


@pytest.fixture
async def installation(settings: Settings, tmp_path: Path) -> AsyncIterator[AddressOperator]:
    """All parts."""
    async with office(settings, tmp_path) as running:
        yield running


async def test_cycles_are_paused_and_resumed(settings: Settings, database: Database) -> None:
    """The schedule says by whom and why, and so does the audit."""
    async with running_api(settings) as api_client:
        paused = await api_client.as_admin("POST", "/v1/addresses/cycle/pause", json=SIGNED)
        seen = await api_client.as_admin("GET", "/v1/addresses/cycle")
        resumed = await api_client.as_admin(
            "POST", "/v1/addresses/cycle/resume", json={**SIGNED, "reason": "all is well"}
        )
        schedule = (await temporal.connect()).get_schedule_handle(names.CYCLE_SCHEDULE)

        async def woken() -> bool:
            return bool((await schedule.describe()).info.num_actions)

        await eventually(woken)
    await schedule.delete()

    assert (paused.status, paused.body["is_paused"], paused.body["note"]) == (200, True, "ann: tidying up")
    assert seen.body["is_paused"]
    assert (paused.body["next_runs"], seen.body["next_runs"]) == ([], [])
    assert resumed.body["next_runs"]
    assert (resumed.body["is_paused"], resumed.body["note"]) == (False, "ann: all is well")
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT who, action, reason FROM addr_audit ORDER BY id")
    assert [tuple(row) for row in rows] == [("ann", "pause", "tidying up"), ("ann", "resume", "all is well")]


async def test_who_looks_at_the_cycle_writes_nothing(settings: Settings) -> None:
    """A write after the read would undo a pause that came in between."""
    schedule = await handle.create_or_update_cycle_schedule(await temporal.connect(), 3_600)
    before = (await schedule.describe()).info.last_updated_at
    async with running_api(settings) as api_client:
        await api_client.as_admin("POST", "/v1/addresses/cycle/pause", json=SIGNED)
        seen = await api_client.as_admin("GET", "/v1/addresses/cycle")
    after = await schedule.describe()
    await schedule.delete()

    assert seen.body["is_paused"]
    assert after.info.last_updated_at == before


@pytest.mark.long
async def test_a_cycle_under_way_says_how_far_it_is(installation: AddressOperator, database: Database) -> None:
    """Its phase, its name and what it has done, as long as it runs; afterwards there is nothing to say."""
    installation.oss.set(OssScenario(rules=(OssRule(action=OssAction.SLOW, seconds=8),)))
    message = PublishedMessage(message_id="1", data=b'{"uprn": 7, "address_id": 1, "record": {}}')
    await MessageLogAndQuarantineWriter(database, 1_000).store_messages_or_quarantine_them(
        [DeliveredMessage(Topic.CREATE_UPDATE, message)]
    )
    # On a busy machine the cycle may be over before this is answered.
    resuming = asyncio.create_task(installation.post("/v1/addresses/cycle/resume", **SIGNED))

    async def under_way() -> dict[str, Any]:
        progress: dict[str, Any] = (await installation.get("/v1/addresses/cycle")).body["progress"] or {}
        return progress if progress.get("loaded") else {}

    progress = await eventually(under_way)
    installation.oss.set(OssScenario())
    assert (await resuming).status == 200

    # The schedule would begin another cycle after this one.
    assert (await installation.post("/v1/addresses/cycle/pause", **SIGNED)).status == 200

    async def is_over() -> bool:
        seen = (await installation.get("/v1/addresses/cycle")).body
        assert bool(seen["workflow_ids"]) == bool(seen["progress"]), seen
        return not seen["workflow_ids"]

    await eventually(is_over)
    await (await handle.create_or_update_cycle_schedule(await temporal.connect(), 3_600)).delete()
    assert (progress["phase"], progress["loaded"], progress["cycles"]) == ("createUpdate", 1, 0)
    assert progress["cycle_id"].endswith("-1")


async def test_logical_deletes_are_listed_checked_and_purged(installation: AddressOperator, database: Database) -> None:
    """A check finds what no module needs, and an operator purges it; what is needed stays."""
    async with database.session() as session:
        session.add_all(build_delete(id_, 100 + id_, 60, Module.OD) for id_ in (1, 2, 3))
    installation.oss.modules[Module.OD].begin_orders([2])
    first = await installation.get(DELETES, limit="2")
    rest = await installation.get(DELETES, cursor=first.body["next_cursor"])

    ordered = await installation.post(f"{DELETES}:check")

    async def list_removable() -> list[int]:
        return [each["address_id"] for each in (await installation.get(DELETES, removable="true")).body["items"]]

    removable = await eventually(list_removable)
    purge = await installation.post(f"{DELETES}:purge", address_ids=[1, 2, 4711], **SIGNED)
    report = await installation.wait_for_end(f"{DELETES}/purges/{purge.body['purge_id']}")
    left = [each["address_id"] for each in (await installation.get(DELETES)).body["items"]]
    gone = (await installation.get(DELETES, purged="true")).body["items"]
    await (await handle.create_or_update_check_schedule(await temporal.connect(), 24)).delete()

    assert sorted(each["address_id"] for each in (*first.body["items"], *rest.body["items"])) == [1, 2, 3]
    assert ordered.status == 202
    assert sorted(removable) == [1, 3]
    assert (purge.status, purge.body["state"]) == (202, "running")
    assert (report["state"], report["purged"], report["in_use"]) == ("succeeded", [1], [2])
    assert sorted(left) == [2, 3]
    assert [each["address_id"] for each in gone] == [1]
    assert [each["needed_by"] for each in (await installation.get(DELETES, uprn="102")).body["items"]] == [["od"]]


async def test_modules_are_compared_and_the_workbook_is_linked(installation: AddressOperator) -> None:
    """An address that one module lacks is in it."""
    async with ModulesClient(installation.api_client.settings.addresses) as client:
        for module in (Module.ED, Module.IM, Module.WFM):
            await client.apply_operations(module, [upsert(1, 7, 1)])

    ordered = await installation.post(COMPARISONS)
    report = await installation.wait_for_end(f"{COMPARISONS}/{ordered.body['comparison_id']}")
    async with aiohttp.ClientSession() as session, session.get(report["found"]["url"]) as answer:
        book = pd.read_excel(io.BytesIO(await answer.read()), sheet_name="addresses", dtype=str, engine="openpyxl")

    [one] = (await installation.get(COMPARISONS)).body["items"]

    assert (one["comparison_id"], one["state"]) == (report["comparison_id"], "succeeded")
    assert (one["compared"], one["different"]) == (1, 1)
    assert re.sub("[-:]", "", one["requested_at"]) == report["comparison_id"]
    assert (ordered.status, ordered.body["state"], report["state"]) == (202, "running", "succeeded")
    assert (
        report["found"]["compared"],
        report["found"]["different"],
        report["found"]["presence_differs"],
    ) == (1, 1, 1)
    assert list(book["uprn"]) == ["7"]


async def test_a_comparison_that_ended_without_a_report_says_why(settings: Settings) -> None:
    """Here an operator has terminated it."""
    async with running_api(settings) as api_client:
        report = (await api_client.as_admin("POST", COMPARISONS)).body["comparison_id"]
        running = await api_client.as_admin("GET", f"{COMPARISONS}/{report}")
        await (
            (await temporal.connect())
            .get_workflow_handle(names.build_comparison_workflow_id(report))
            .terminate(reason="too busy today")
        )

        failed = await api_client.as_admin("GET", f"{COMPARISONS}/{report}")

        async def list_comparisons() -> list[Any]:
            listed = (await api_client.as_admin("GET", COMPARISONS)).body["items"]
            return [(each["comparison_id"], each["state"], each["different"]) for each in listed]

        # The engine finds workflows a moment after they began.
        assert await eventually(list_comparisons) == [(report, "failed", None)]

    assert running.body["state"] == "running"
    assert (failed.body["state"], failed.body["found"]) == ("failed", None)
    assert failed.body["fault"] == {
        "code": "comparison_ended",
        "message": "The workflow of the comparison was ended in Temporal before it was done: too busy today.",
        "hint": "Compare the modules again.",
        "retryable": False,
    }


async def test_what_nobody_ordered_is_not_there(installation: AddressOperator) -> None:
    """Neither a purge nor a comparison."""
    replies = [
        await installation.get(f"{DELETES}/purges/{'0' * 24}"),
        await installation.get(f"{COMPARISONS}/20200101T000000Z"),
        await installation.get(f"{COMPARISONS}/yesterday"),
    ]
    assert {(reply.status, reply.code) for reply in replies} == {(404, "not_found")}


async def test_the_guide_asks_for_what_there_is(settings: Settings) -> None:
    """Each call in it is understood; what it names is there or, at worst, is not."""
    guide = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "operate-addresses.md").read_text()
    calls = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^ask .+$", guide, re.MULTILINE)]
    replies = []
    async with running_api(settings) as api_client:
        for path, *options in calls:
            method = options[options.index("-X") + 1] if "-X" in options else "GET"
            body = {"json": json.loads(options[options.index("-d") + 1])} if "-d" in options else {}
            replies.append((path, await api_client.as_admin(method, f"/v1/addresses/{path}", **body)))
    engine = await temporal.connect()
    for schedule in (names.CYCLE_SCHEDULE, names.CHECK_SCHEDULE):
        await engine.get_schedule_handle(schedule).delete()

    assert len(replies) > 20
    assert [path for path, reply in replies if reply.status not in (200, 202) and not _is_nobodys(reply)] == []


def _is_nobodys(reply: Reply) -> bool:
    return reply.code == "not_found" and reply.body["detail"].startswith(
        ("There is no message", "There is no purge", "There is no comparison")
    )
