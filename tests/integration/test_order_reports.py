"""Reports of a platform's days through the public API: what is compared, and what the slices notice of it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from sqlmodel import select
from temporalio import workflow

from activities.orders import reporting
from domain.orders import names
from domain.orders.activity_models import ReportReadingProgress
from domain.orders.capability import FilteredTimestamp
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.tables.orders import Order
from tests.support.orders import NUMBER, Orders, running_orders, since
from tests.support.waiting import eventually
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
DAY_SECONDS = 86_400
DAY = "2026-01-01"
PATH = f"/v1/platforms/{NUMBER}/reports"
ROWS = PLAIN.rows
BEIJING = PLAIN.model_copy(
    update={"rows": ROWS.model_copy(update={"time_format": ROWS.time_format.model_copy(update={"zone_minutes": 480})})}
)


async def fetch_platform(orders: Orders, scenario: PlatformScenario, **options: Any) -> Platform:
    """A platform whose orders are in, from the first on."""
    platform = orders.play(scenario)
    await orders.set_up(capability=options.pop("capability", PLAIN))
    starttime = since(platform, seconds=scenario.span_seconds)
    await orders.configure(starttime=starttime, **{"interval": 600, **options})
    await orders.fetch()
    assert await orders.is_complete()
    return platform


async def let_the_day_end(orders: Orders, platform: Platform) -> None:
    """Let a day pass, and the platform's clock be looked at; nothing more is claimed."""
    await orders.ask("PATCH", f"/v1/platforms/{NUMBER}/config", json={"settle_lag": 10 * DAY_SECONDS})
    platform.market.clock.advance(DAY_SECONDS)
    await orders.fetch()


async def list_modification_times(orders: Orders) -> list[datetime]:
    """When each order that we have was modified."""
    async with orders.services.database.session() as session:
        return list(await session.exec(select(Order.modified_at)))


async def make_report(orders: Orders, day: str = DAY) -> dict[str, Any]:
    """The report of a day, once it is made."""
    reply = await orders.ask("POST", PATH, json={"day": day})
    assert reply.status == 202, reply.body
    await orders.engine.get_workflow_handle(reply.body["workflow_id"]).result()
    report: dict[str, Any] = (await orders.ask("GET", f"{PATH}/{day}")).body
    return report


@pytest.mark.parametrize(("field", "not_listed"), [(FilteredTimestamp.MODIFIED, 1), (FilteredTimestamp.CREATED, None)])
async def test_what_is_not_listed_is_told_where_it_can_be_known(
    settings: Settings, field: FilteredTimestamp, not_listed: int | None
) -> None:
    """An order that is modified after the day leaves it; the day of a creation only the platform knows."""
    capability = PLAIN.model_copy(update={"query": PLAIN.query.model_copy(update={"field": field})})
    async with running_orders(settings) as orders:
        platform = await fetch_platform(
            orders, PlatformScenario(orders=30, span_seconds=SPAN_SECONDS), capability=capability
        )
        await let_the_day_end(orders, platform)
        platform.market.modify(0, platform.market.now_us)
        report = await make_report(orders)
        stored = await list_modification_times(orders)

    count = len(stored) if field is FilteredTimestamp.MODIFIED else len(stored) - 1
    assert (report["listed"], report["stored"]) == (len(stored) - 1, count)
    assert (report["missing"], report["not_listed"]) == (0, not_listed)


@pytest.mark.parametrize("rows_max", [20, None])
@pytest.mark.long
async def test_a_day_is_compared_where_slices_had_to_be_split(settings: Settings, rows_max: int | None) -> None:
    """A platform that lists 20 orders of a query is asked for shorter times, whether or not its record says so."""
    paging = PLAIN.paging.model_copy(update={"size": 10, "rows_max": rows_max})
    capability = PLAIN.model_copy(update={"paging": paging, "total": None})
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, rows_max=20)
        platform = await fetch_platform(orders, scenario, capability=capability, interval=1_200)
        await let_the_day_end(orders, platform)
        report, stored, slices = await make_report(orders), await list_modification_times(orders), await orders.slices()

    assert len(slices) > 3, "none was split: nothing was shown"
    assert (report["listed"], report["stored"]) == (len(stored), len(stored))
    assert (report["missing"], report["not_listed"]) == (0, 0)


async def test_a_day_is_compared_with_the_platform(settings: Settings) -> None:
    """Counts and ids, in a workbook; an order that was never fetched is missing, one past `complete_to` is not."""
    async with running_orders(settings) as orders:
        platform = await fetch_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
        platform.market.create(platform.market.now_us - 1_800_000_000, late_us=0)
        platform.market.clock.advance(100)
        platform.market.create(platform.market.now_us, late_us=0)
        await let_the_day_end(orders, platform)

        report = await make_report(orders)
        row, stored = await orders.row(), await list_modification_times(orders)
        book = await orders.services.objects.get(names.build_report_workbook_key(NUMBER, DAY))
        days = (await orders.ask("GET", PATH)).body

    assert row.complete_to is not None
    within = [each for each in stored if each < row.complete_to]
    assert (report["missing"], report["not_listed"]) == (1, 0)
    assert (report["listed"], report["stored"]) == (len(within) + 1, len(within))
    assert datetime.fromisoformat(report["window"]["end"]) == row.complete_to < datetime(2026, 1, 2, tzinfo=UTC)
    assert datetime.fromisoformat(report["complete_to"]) == row.complete_to
    missing = pd.read_excel(io.BytesIO(book), sheet_name="missing", engine="openpyxl", dtype=str)
    assert len(missing) == 1
    assert days == {"items": [{"platform": NUMBER, "day": DAY}], "next_cursor": None}


@pytest.mark.long
async def test_a_day_is_that_of_the_platform(settings: Settings) -> None:
    """Over at midnight there, which is afternoon in Greenwich; the day that has begun there is refused."""
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(orders=200, span_seconds=20 * 3_600)
        await fetch_platform(orders, scenario, capability=BEIJING, interval=3_600)

        report = await make_report(orders)
        refused = await orders.ask("POST", PATH, json={"day": "2026-01-02"})
        stored = await list_modification_times(orders)
        status = await orders.status()

    midnight = datetime(2026, 1, 1, 16, tzinfo=UTC)
    assert report["zone_minutes"] == status["zone_minutes"] == 480
    assert datetime.fromisoformat(report["window"]["end"]) == midnight
    assert report["listed"] == report["stored"] == sum(each < midnight for each in stored)
    assert 0 < report["listed"] < len(stored)
    assert refused.code == "day_invalid"
    assert "+08:00" in refused.body["detail"]


async def test_a_day_that_cannot_be_compared_is_refused(settings: Settings) -> None:
    """One that is not over, and one from before the platform's beginning."""
    async with running_orders(settings) as orders:
        await fetch_platform(orders, PlatformScenario(orders=9, span_seconds=SPAN_SECONDS))

        replies = [await orders.ask("POST", PATH, json={"day": day}) for day in (DAY, "2025-12-30")]

    assert [reply.code for reply in replies] == ["day_invalid", "day_invalid"]
    assert "is not over" in replies[0].body["detail"]
    assert "can be compared" in replies[1].body["detail"]


@pytest.mark.long
async def test_a_report_takes_no_thread_of_the_slices(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is read, part by part, a slice is read on the platform's only thread."""
    monkeypatch.setattr(reporting, "PART_SECONDS", 1.0)
    async with running_orders(settings) as orders:
        platform = await fetch_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS), threads=1)
        await let_the_day_end(orders, platform)
        await orders.ask("PATCH", f"/v1/platforms/{NUMBER}/config", json={"interval": 30})
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=700)}))

        reply = await orders.ask("POST", PATH, json={"day": DAY})
        handle = orders.engine.get_workflow_handle(reply.body["workflow_id"], result_type=dict)
        await eventually(lambda: _parts(orders, reply.body["workflow_id"], 1))
        first = (await orders.slices())[0]
        name = TimeWindow(start=first.start_at, end=first.end_at)
        await orders.ask("POST", f"/v1/platforms/{NUMBER}/slices/{name}/redo")
        await eventually(lambda: _was_reread(orders, name))
        assert not await _parts(orders, reply.body["workflow_id"], 60), "it was over too soon to show anything"
        assert (await handle.describe()).close_time is None

        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
        await handle.result()
        report = (await orders.ask("GET", f"{PATH}/{DAY}")).body
    assert (report["missing"], report["listed"]) == (0, report["stored"])


@pytest.mark.long
async def test_a_lost_worker_costs_no_part(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one reads on where the last part ended, and what was read before is compared too."""
    monkeypatch.setattr(reporting, "PART_SECONDS", 1.0)
    async with running_orders(settings, queues=["webhooks"]) as orders:
        queues = [names.QUEUE, names.PLATFORM_QUEUES]
        async with running_worker(orders.api_client.settings, queues):
            platform = await fetch_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
            await let_the_day_end(orders, platform)
            await orders.ask("PATCH", f"/v1/platforms/{NUMBER}/config", json={"interval": 60})
            platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=300)}))
            reply = await orders.ask("POST", PATH, json={"day": DAY})
            await eventually(lambda: _parts(orders, reply.body["workflow_id"], 8))
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
        asked = len(platform.throttle.times)
        async with running_worker(orders.api_client.settings, queues):
            await orders.engine.get_workflow_handle(reply.body["workflow_id"]).result()
        report = (await orders.ask("GET", f"{PATH}/{DAY}")).body

    assert (report["missing"], report["not_listed"]) == (0, 0)
    assert report["listed"] == report["stored"] > 0
    windows = timedelta(seconds=SPAN_SECONDS) // timedelta(seconds=60)
    assert len(platform.throttle.times) - asked < 2 * windows, "it has begun from the front"


@pytest.mark.long
async def test_a_long_report_goes_on_in_another_run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine finds its history long; nothing is read twice or left out."""
    monkeypatch.setattr(reporting, "PART_SECONDS", 0.5)
    async with running_orders(settings) as orders:
        platform = await fetch_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
        await let_the_day_end(orders, platform)
        await orders.ask("PATCH", f"/v1/platforms/{NUMBER}/config", json={"interval": 60})
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=20)}))
        monkeypatch.setattr(workflow.Info, "is_continue_as_new_suggested", lambda _: True)

        report = await make_report(orders)
        workflow_id = names.build_report_workflow_id(NUMBER, DAY)
        runs = [each async for each in orders.engine.list_workflows(f"WorkflowId = '{workflow_id}'")]

    assert len(runs) > 2
    assert (report["missing"], report["not_listed"]) == (0, 0)
    assert report["listed"] == report["stored"] > 0


async def _parts(orders: Orders, workflow_id: str, count: int) -> bool:
    handle = orders.engine.get_workflow_handle(workflow_id)
    part: ReportReadingProgress = await handle.query("status", result_type=ReportReadingProgress)
    return part.number >= count


async def _was_reread(orders: Orders, name: TimeWindow) -> bool:
    reread = (await orders.ask("GET", f"/v1/platforms/{NUMBER}/slices/{name}")).body["reread"]
    return reread is not None and reread["state"] == "succeeded"
