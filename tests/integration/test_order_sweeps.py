"""Sweeps that fail: repeated by themselves, reported when they keep failing, and made up for by a redo."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import update

from domain.faults import FaultRecord
from domain.orders.windows import TimeWindow
from infra import metrics
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.orders import ledger, slices
from stores.tables.orders import OrderPlatform, OrderSlice
from tests.support.orders import NUMBER, Orders, gauge, running_orders, since
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
INTERVAL = 1_700
BROKEN = PlatformScenario(orders=30, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1))
TOLD = "orders.sweep_failed"
FAULT = FaultRecord(code="platform_failed", message="It answered 500.")


async def start_failing_platform(orders: Orders) -> str:
    """A platform whose slices are complete and that answers errors from now on; its starttime."""
    platform = orders.play(PlatformScenario(orders=30, span_seconds=SPAN_SECONDS))
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
    starttime = since(platform, seconds=SPAN_SECONDS)
    await orders.configure(starttime=starttime, interval=INTERVAL)
    await orders.fetch()
    platform.set(BROKEN)
    return starttime


async def until_failed(orders: Orders) -> None:
    """Cycles until the sweep of each slice has failed."""

    async def has_failed() -> bool:
        await orders.fetch()
        return all(row.failed_at for row in await orders.slices())

    await eventually(has_failed)


async def sweep(orders: Orders, window: TimeWindow, *, succeeds: bool) -> bool:
    """End the sweep of a slice; returns whether an alarm is due."""
    async with orders.services.database.session() as session:
        platform = await session.get_one(OrderPlatform, NUMBER, with_for_update=True)
        if not succeeds:
            return await slices.record_failed_sweep(session, platform, window, FAULT, uuid4().hex)
        row = await ledger.find_slice(session, NUMBER, window, lock=True)
        assert row is not None
        await slices.record_completed_sweep_and_rearm_failure_alarm(session, platform, row, 0, None)
    return False


async def unsweep(orders: Orders) -> None:
    """Have all slices wait for their sweep again."""
    async with orders.services.database.session() as session:
        await session.exec(update(OrderSlice).values(swept_at=None))


async def concerns(orders: Orders) -> dict[str, int]:
    """What the overview says of orders."""
    systems = (await orders.ask("GET", "/v1/overview")).body["systems"]
    found = next(each["concerns"] for each in systems if each["system"] == "orders")
    return {each["kind"]: each["count"] for each in found}


@pytest.mark.long
async def test_sweeps_that_keep_failing_are_told_once(settings: Settings) -> None:
    """An event, the metric, the platform, the overview and the ledger; a sweep that succeeds ends each of them."""
    async with running_orders(settings) as orders:
        starttime = await start_failing_platform(orders)
        await orders.configure(starttime=starttime, interval=INTERVAL, sweep_after=1, retries=0)
        await until_failed(orders)
        count = len(await orders.slices())

        async def is_told() -> bool:
            await orders.fetch()
            return TOLD in await orders.events()

        async def has_no_concern() -> bool:
            return "sweeps_failed" not in await concerns(orders)

        await eventually(is_told)
        for _ in range(3):
            await orders.fetch()
        status, listed = await orders.status(), (await orders.ask("GET", f"/v1/platforms/{NUMBER}/slices?sweep=failed"))
        assert (await orders.events()).count(TOLD) == 1
        assert (status["sweeps_failed"], status["slices_failed"], status["gaps"]) == (count, 0, [])
        assert (await orders.ask("GET", "/v1/platforms")).body["items"][0]["sweeps_failed"] == count
        assert [(each["state"], each["fault"]["code"]) for each in listed.body["items"]] == [
            ("done", "platform_busy")
        ] * count
        assert (await concerns(orders))["sweeps_failed"] == count
        assert await eventually(lambda: gauge(metrics.SWEEPS_FAILED) == count)

        orders.platforms.by_number[NUMBER].set(BROKEN.model_copy(update={"faults": PlatformFaults()}))
        await orders.wait_until_swept()
        assert (await orders.status())["sweeps_failed"] == 0
        assert (await orders.row()).sweeps_alarm_by is None
        assert await eventually(has_no_concern)
        assert await eventually(lambda: gauge(metrics.SWEEPS_FAILED) == 0)


async def test_the_second_failure_in_a_row_is_told_once_for_a_platform(settings: Settings) -> None:
    """Whichever slice it is of, and anew only after no sweep of the platform fails any more."""
    async with running_orders(settings) as orders:
        await start_failing_platform(orders)
        windows = [ledger.build_window(row) for row in await orders.slices()]
        assert len(windows) > 1
        for _ in range(2):
            told = [await sweep(orders, window, succeeds=False) for _ in range(3) for window in windows]
            assert told == [False] * len(windows) + [True] + [False] * (2 * len(windows) - 1)
            for window in windows:
                await sweep(orders, window, succeeds=True)
                assert await sweep(orders, window, succeeds=False) is False
            await unsweep(orders)


@pytest.mark.long
async def test_a_redo_makes_up_for_a_sweep_that_failed(settings: Settings) -> None:
    """What it reads is read later than the sweep was due, so that no other sweep is needed."""
    async with running_orders(settings) as orders:
        starttime = await start_failing_platform(orders)
        await orders.configure(starttime=starttime, interval=INTERVAL, sweep_after=1, retries=0)
        await until_failed(orders)
        await orders.configure(starttime=starttime, interval=INTERVAL, sweep_after=86_400)
        orders.platforms.by_number[NUMBER].set(BROKEN.model_copy(update={"faults": PlatformFaults()}))
        listed = await orders.ask("GET", f"/v1/platforms/{NUMBER}/slices?sweep=failed")
        chosen = [each["slice"] for each in listed.body["items"]]
        redone = await orders.ask("POST", f"/v1/platforms/{NUMBER}/slices:redo", json={"slices": chosen})

        async def is_swept() -> bool:
            return all(row.swept_at for row in await orders.slices())

        await eventually(is_swept)
        rows = await orders.slices()

    assert redone.status == 202
    assert [(row.failed_at, row.fault, row.missed) for row in rows] == [(None, None, 0)] * len(chosen)
