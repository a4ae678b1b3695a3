"""Backfills through the public API: each has one record, and one that fails says so everywhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import ScheduleBackfill, ScheduleOverlapPolicy
from temporalio.testing import ActivityEnvironment

from activities.orders.activities import BackfillActivities
from domain.orders import names
from domain.orders.activity_models import BackfillInput
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.tables.orders import OrderSlice
from tests.support.orders import NUMBER, QUEUES, Orders, running_orders, scan_overdue, since
from tests.support.waiting import eventually
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
PATH = f"/v1/platforms/{NUMBER}"


async def fetch_platform(orders: Orders, **options: Any) -> list[OrderSlice]:
    """A platform whose hour of orders is in, in slices of ten minutes; its ledger."""
    platform = orders.play(PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
    await orders.configure(
        starttime=since(platform, seconds=SPAN_SECONDS), **{"interval": 600, "retries": 0, **options}
    )
    await orders.fetch()
    assert await orders.is_complete()
    return await orders.slices()


def play(orders: Orders, **faults: Any) -> None:
    """Let the platform behave like this from now on."""
    platform = orders.platforms.by_number[NUMBER]
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(**faults)}))


async def begin(orders: Orders, rows: list[OrderSlice], **body: Any) -> dict[str, Any]:
    """Ask for the time of these slices again; the record as it was answered."""
    times = {"start": rows[0].start_at.isoformat(), "end": rows[-1].end_at.isoformat()}
    reply = await orders.ask("POST", f"{PATH}/backfill", json={**times, **body})
    assert reply.status == 202, reply.body
    record: dict[str, Any] = reply.body
    return record


async def wait_for_end(orders: Orders, record: dict[str, Any]) -> dict[str, Any]:
    """The record once the backfill is over."""

    async def over() -> dict[str, Any]:
        found = (await orders.ask("GET", f"{PATH}/backfills/{record['backfill_id']}")).body
        return found if found["state"] != "running" else {}

    return await eventually(over)


async def list_records(orders: Orders) -> list[dict[str, Any]]:
    """All records, newest first."""
    items: list[dict[str, Any]] = (await orders.ask("GET", f"{PATH}/backfills")).body["items"]
    return items


async def read_slice(orders: Orders, row: OrderSlice) -> dict[str, Any]:
    """A slice as the API returns it."""
    name = TimeWindow(start=row.start_at, end=row.end_at)
    body: dict[str, Any] = (await orders.ask("GET", f"{PATH}/slices/{name}")).body
    return body


async def list_alarms(orders: Orders) -> list[str]:
    """The alarms that the administrator received, but for the stand-in's clock, which is always off."""
    return [each for each in await orders.events() if each != "orders.clock_off"]


async def test_a_backfill_reads_again_and_is_recorded(settings: Settings) -> None:
    """Each complete slice of the time once; no mark moves; the record says who asked and how it ended."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        before, platform = await orders.row(), orders.platforms.by_number[NUMBER]

        play(orders, slow_ms=500)
        first = platform.throttle.times
        record = await begin(orders, rows[:3], who="Ada")
        play(orders)
        end = await wait_for_end(orders, record)

        after = await orders.row()
        assert len(first + platform.throttle.times) >= 3
        assert (record["state"], record["slices"], record["requested_by"]) == ("running", 3, "Ada")
        assert (end["state"], end["read"], end["failed"], end["fault"]) == ("succeeded", 3, 0, None)
        assert datetime.fromisoformat(end["read_to"]) == rows[2].end_at
        assert end["finished_at"]
        assert (after.claimed_to, after.complete_to) == (before.claimed_to, before.complete_to)
        assert [(await read_slice(orders, row))["reread"] is not None for row in rows] == [True] * 3 + [False] * (
            len(rows) - 3
        )
        assert (await read_slice(orders, rows[0]))["reread"]["state"] == "succeeded"
        assert await list_records(orders) == [end]
        assert (await orders.status())["backfill"] == end
        assert await list_alarms(orders) == []


async def test_a_backfill_that_fails_is_told_everywhere(settings: Settings) -> None:
    """In its record with the cause, by a webhook, at the platform, and at the slices that could not be read."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        before = await orders.row()
        play(orders, errors=1)

        end = await wait_for_end(orders, await begin(orders, rows[:2]))

        assert (end["state"], end["read"], end["failed"], end["requested_by"]) == ("failed", 0, 2, "the admin key")
        assert end["fault"]["code"] == "platform_busy"
        assert str(TimeWindow(start=rows[0].start_at, end=rows[0].end_at)) in end["fault"]["message"]
        await eventually(lambda: list_alarms(orders))
        assert await list_alarms(orders) == ["orders.backfill_failed"]
        assert (await orders.status())["backfill"] == end
        assert (await orders.ask("GET", f"{PATH}/backfills?state=failed")).body["items"] == [end]
        slices = (await orders.ask("GET", f"{PATH}/slices?reread=failed")).body["items"]
        assert [(each["state"], each["reread"]["fault"]["code"]) for each in slices] == [("done", "platform_busy")] * 2
        assert (await orders.row()).complete_to == before.complete_to

        play(orders)
        assert (await wait_for_end(orders, await begin(orders, rows[:2])))["state"] == "succeeded"
        assert (await orders.ask("GET", f"{PATH}/slices?reread=failed")).body["items"] == []
        assert [each["state"] for each in await list_records(orders)] == ["succeeded", "failed"]


@pytest.mark.long
async def test_a_hopeless_backfill_leaves_the_rest(settings: Settings) -> None:
    """After a few slices in a row have failed, the platform is asked no more; the record says up to where it was."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders, interval=100, overlap=0)
        assert len(rows) > 30
        play(orders, errors=1)

        end = await wait_for_end(orders, await begin(orders, rows))

        assert (end["state"], end["read"], end["slices"]) == ("failed", 0, len(rows))
        assert 3 <= end["failed"] < len(rows)
        assert datetime.fromisoformat(end["read_to"]) == rows[end["failed"] - 1].end_at
        assert "the rest was not tried" in end["fault"]["message"]


@pytest.mark.long
async def test_what_is_read_again_is_not_simply_done(settings: Settings) -> None:
    """While it goes on the ledger says so, and asking for the same time once more is the same backfill."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        play(orders, slow_ms=5_000)

        record = await begin(orders, rows[:2])
        again = await begin(orders, rows[:2])

        async def is_read() -> bool:
            reread = (await read_slice(orders, rows[0]))["reread"]
            return reread is not None and reread["state"] == "running" and reread["since"] is not None

        await eventually(is_read)
        assert (await orders.ask("GET", f"{PATH}/slices?reread=running")).body["items"]
        assert again["backfill_id"] == record["backfill_id"]
        play(orders)
        await wait_for_end(orders, record)
        assert len(await list_records(orders)) == 1
        assert (await orders.ask("GET", f"{PATH}/slices?reread=running")).body["items"] == []


@pytest.mark.long
async def test_a_lost_worker_leaves_one_record(settings: Settings) -> None:
    """The next worker goes on with the same backfill; a step that is done twice changes nothing."""
    async with running_orders(settings, queues=["webhooks"]) as orders:
        async with running_worker(orders.api_client.settings, QUEUES):
            rows = await fetch_platform(orders)
            play(orders, slow_ms=300)
            record = await begin(orders, rows[:3])
            await eventually(lambda: _is_rereading(orders))
        play(orders)
        async with running_worker(orders.api_client.settings, QUEUES):
            end = await wait_for_end(orders, record)

        order = BackfillInput(
            platform=NUMBER,
            project_id=orders.project_id,
            backfill_id=record["backfill_id"],
            window=TimeWindow(start=rows[0].start_at, end=rows[2].end_at),
            requested_by="somebody else",
            requested_at=datetime.now(UTC),
        )
        await ActivityEnvironment().run(BackfillActivities(orders.services).insert_backfill_if_new, order)
        assert (end["state"], end["read"]) == ("succeeded", 3)
        assert await list_records(orders) == [end]


async def test_a_backfill_that_is_ended_by_hand_has_failed(settings: Settings) -> None:
    """Whether it is cancelled in order or terminated: then the watch finds that no workflow leads it any more."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        play(orders, slow_ms=5_000)
        cancelled, terminated = await begin(orders, rows[:1]), await begin(orders, rows[1:2])
        await orders.engine.get_workflow_handle(cancelled["workflow_id"]).cancel()
        await orders.engine.get_workflow_handle(terminated["workflow_id"]).terminate()

        assert (await wait_for_end(orders, cancelled))["fault"]["code"] == "backfill_ended"
        found, again = await scan_overdue(orders), await scan_overdue(orders)

        assert [each.type for each in found] == ["orders.backfill_failed"]
        assert again == []
        assert (await wait_for_end(orders, terminated))["fault"]["code"] == "backfill_ended"
        play(orders)


@pytest.mark.long
async def test_a_complete_slice_that_has_grown_is_read_all_the_same(settings: Settings) -> None:
    """It is not split any more, however many orders it holds by now."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        await orders.configure(
            starttime=since(orders.platforms.by_number[NUMBER], seconds=SPAN_SECONDS),
            interval=600,
            retries=0,
            max_rows_per_slice=1,
        )

        assert (await wait_for_end(orders, await begin(orders, rows[:2])))["read"] == 2


@pytest.mark.long
async def test_a_time_without_complete_slices_is_refused(settings: Settings) -> None:
    """There would be nothing to read again."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        later = rows[-1].end_at + timedelta(days=1)
        times = {"start": later.isoformat(), "end": (later + timedelta(hours=1)).isoformat()}

        reply = await orders.ask("POST", f"{PATH}/backfill", json=times)
        nobody = await orders.ask("GET", f"{PATH}/backfills/00")

    assert (reply.code, nobody.status) == ("window_invalid", 404)


@pytest.mark.long
async def test_a_backfill_of_the_schedule_is_recorded_too(settings: Settings) -> None:
    """As Temporal's Web UI begins it: one record for each slice, however many runs lie in its time."""
    async with running_orders(settings) as orders:
        rows = await fetch_platform(orders)
        schedule = orders.engine.get_schedule_handle(names.build_cycle_schedule_id(NUMBER))
        start = rows[0].end_at - timedelta(minutes=4)
        await schedule.backfill(
            ScheduleBackfill(
                start_at=start, end_at=start + timedelta(minutes=3), overlap=ScheduleOverlapPolicy.ALLOW_ALL
            )
        )

        [record] = await eventually(lambda: list_records(orders))
        end = await wait_for_end(orders, record)
        await asyncio.sleep(1)

        assert (end["state"], end["read"], end["requested_by"]) == ("succeeded", 1, "Temporal's schedule")
        assert datetime.fromisoformat(end["window"]["start"]) == rows[0].start_at
        assert len(await list_records(orders)) == 1


async def _is_rereading(orders: Orders) -> bool:
    return any(row.reread_since is not None for row in await orders.slices())
