"""Slices that take too long are reported once, shown with the platform's other troubles, and forgotten at their end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import col, func, update

from activities.orders import watch
from domain.orders import names
from domain.orders.activity_models import OrderWatchPatienceInput
from domain.orders.windows import TimeWindow
from infra import metrics
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.tables.orders import OrderSlice
from tests.support.orders import NUMBER, SIGNED, Orders, gauge, running_orders, scan_overdue, since
from tests.support.selecting import mark_long_except
from tests.support.waiting import eventually
from workflows.orders.alarms import OrderWatchWorkflow

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
PATH = f"/v1/platforms/{NUMBER}"
LOST_WORKERS: dict[str, Any] = {"done_at": None, "attempts": 10}
"""A slice that ten workers were lost with."""


async def fetch_platform(orders: Orders) -> OrderSlice:
    """A platform whose hour of orders is in; its first slice."""
    platform = orders.play(PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
    await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), interval=1_500, retries=0)
    await orders.fetch()
    return (await orders.slices())[0]


async def change(orders: Orders, row: OrderSlice, **values: Any) -> None:
    """Make a slice's row say something else."""
    async with orders.services.database.session() as session:
        await session.exec(update(OrderSlice).where(col(OrderSlice.slice_id) == row.slice_id).values(**values))


def ago(**distance: float) -> Any:
    """A time before the database's now."""
    return func.now() - timedelta(**distance)


async def list_stale_slices(orders: Orders) -> list[str]:
    """The stale slices as the API lists them."""
    reply = await orders.ask("GET", f"{PATH}/slices?stale=true")
    return [each["slice"] for each in reply.body["items"]]


@pytest.mark.long
async def test_a_slice_that_takes_too_long_is_reported_once(settings: Settings) -> None:
    """By the watch: an event, the metric, the platform, the overview and the ledger; its end clears all of them."""
    async with running_orders(settings) as orders:
        first = await fetch_platform(orders)
        await change(orders, first, **LOST_WORKERS, claimed_at=ago(hours=25))

        for turn in range(2):
            await orders.engine.execute_workflow(
                OrderWatchWorkflow.run,
                OrderWatchPatienceInput(patience_seconds=30),
                id=f"watch-{turn}",
                task_queue=names.QUEUE,
            )
        events = await eventually(lambda: _stale_events(orders))
        overview = (await orders.ask("GET", "/v1/overview")).body
        assert len(events) == 1
        assert (await orders.status())["slices_stale"] == 1
        assert (await orders.ask("GET", "/v1/platforms")).body["items"][0]["slices_stale"] == 1
        assert await list_stale_slices(orders) == [str(TimeWindow(start=first.start_at, end=first.end_at))]
        assert await eventually(lambda: gauge(metrics.SLICES_STALE) == 1)
        [shown] = [each["concerns"] for each in overview["systems"] if each["system"] == "orders"]
        [concern] = [each for each in shown if each["kind"] == "stale"]
        assert (concern["count"], concern["largest_groups"][0]["subject"]) == (1, NUMBER)

        await orders.fetch()
        assert await scan_overdue(orders) == []
        assert (await orders.status())["slices_stale"] == 0
        assert await list_stale_slices(orders) == []
        assert await eventually(lambda: gauge(metrics.SLICES_STALE) == 0)


async def test_what_is_reported_says_what_to_do(settings: Settings) -> None:
    """Since when, how often it was tried, and where to look."""
    async with running_orders(settings) as orders:
        first = await fetch_platform(orders)
        await change(orders, first, **LOST_WORKERS, claimed_at=ago(hours=30))

        [alarm] = await scan_overdue(orders)

    window = TimeWindow(start=first.start_at, end=first.end_at)
    assert alarm.type == "orders.slice_stale"
    assert "30 hours ago" in alarm.message
    assert "10 attempts" in alarm.message
    assert names.build_slice_workflow_id(NUMBER, window) in alarm.message


async def test_a_slice_is_given_its_time(settings: Settings) -> None:
    """A day by default, less where the setting says so."""
    async with running_orders(settings, stale_hours=1) as orders:
        first = await fetch_platform(orders)
        await change(orders, first, **LOST_WORKERS, claimed_at=ago(minutes=50))
        assert await scan_overdue(orders) == []
        await change(orders, first, claimed_at=ago(minutes=70))
        assert len(await scan_overdue(orders)) == 1


async def test_a_pause_excuses_what_was_not_begun(settings: Settings) -> None:
    """A paused platform begins nothing; once it is resumed, what still waits is reported."""
    async with running_orders(settings, queues=[names.QUEUE]) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
        await orders.configure()
        start = (await orders.row()).created_at.replace(microsecond=0)
        waiting = OrderSlice(
            platform=NUMBER,
            start_at=start,
            end_at=start + timedelta(minutes=10),
            track="live",
            claimed_at=start - timedelta(days=2),
        )
        async with orders.services.database.session() as session:
            session.add(waiting)

        assert await scan_overdue(orders) == []
        await orders.ask("POST", f"{PATH}/resume", json=SIGNED)
        assert [each.type for each in await scan_overdue(orders)] == ["orders.slice_stale"]


async def test_what_a_pause_excuses_hides_no_other(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many slices a paused platform has not begun, and however old they are."""
    monkeypatch.setattr(watch, "SLICES_AT_ONCE", 1)
    async with running_orders(settings, queues=[names.QUEUE]) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
        start = (await orders.row()).created_at.replace(microsecond=0)
        async with orders.services.database.session() as session:
            for number, attempts in enumerate((0, 0, 10)):
                begin = start + timedelta(minutes=10 * number)
                session.add(
                    OrderSlice(
                        platform=NUMBER,
                        start_at=begin,
                        end_at=begin + timedelta(minutes=10),
                        track="live",
                        claimed_at=begin - timedelta(days=2),
                        attempts=attempts,
                    )
                )

        [alarm] = await scan_overdue(orders)
        assert "10 attempts" in alarm.message


@pytest.mark.parametrize("end", mark_long_except(["failed", "skipped", "split"], ["failed"]))
async def test_every_end_clears_the_report(settings: Settings, end: str) -> None:
    """Whatever becomes of the slice, it takes no longer."""
    async with running_orders(settings) as orders:
        first = await fetch_platform(orders)
        await change(orders, first, **LOST_WORKERS, claimed_at=ago(hours=25))
        assert len(await scan_overdue(orders)) == 1
        if end == "failed":
            platform = orders.platforms.by_number[NUMBER]
            platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(errors=1)}))
            await orders.fetch()
        else:
            await change(orders, first, failed_at=func.now(), fault={"code": "c", "message": "m"})
            name = TimeWindow(start=first.start_at, end=first.end_at)
            body = {"reason": "the shop was closed"} if end == "skipped" else None
            await orders.ask("POST", f"{PATH}/slices/{name}/{'skip' if end == 'skipped' else 'split'}", json=body)

        [row] = [each for each in await orders.slices() if each.slice_id == first.slice_id]
        assert {"failed": row.failed_at, "skipped": row.skipped_at, "split": row.split_at}[end] is not None
        assert row.stale_told_at is None


async def test_a_reading_again_that_takes_too_long_is_reported(settings: Settings) -> None:
    """While a worker reads; once none does, the ledger says that it has failed."""
    async with running_orders(settings) as orders:
        first = await fetch_platform(orders)
        name = TimeWindow(start=first.start_at, end=first.end_at)
        platform = orders.platforms.by_number[NUMBER]
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=5_000)}))
        await orders.ask("POST", f"{PATH}/slices/{name}/redo")
        await eventually(lambda: _is_rereading(orders))
        await change(orders, first, reread_since=ago(hours=25))

        [alarm] = await scan_overdue(orders)
        assert "read again for 25 hours" in alarm.message

        await change(orders, first, stale_told_at=None)
        handle = orders.engine.get_workflow_handle(names.build_slice_workflow_id(NUMBER, name, names.REDO_SUFFIX))
        await handle.terminate()
        assert await scan_overdue(orders) == []
        reread = (await orders.ask("GET", f"{PATH}/slices/{name}")).body["reread"]
        assert (reread["state"], reread["fault"]["code"]) == ("failed", "slice_ended")
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))


async def _stale_events(orders: Orders) -> list[str]:
    return [each for each in await orders.events() if each == "orders.slice_stale"]


async def _is_rereading(orders: Orders) -> bool:
    return any(row.reread_since is not None for row in await orders.slices())
