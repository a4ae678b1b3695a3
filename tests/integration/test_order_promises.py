"""What is promised about orders (O1 to O12), held against platforms that change, fail and limit while they are read."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from clients.platforms.permits import HELD_MIN_SECONDS
from domain.orders import names, windows
from domain.orders.capability import Capability
from domain.orders.known_platforms import KNOWN_PLATFORMS
from infra.settings import Settings
from sims.platforms import checker
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import Changes, Kind, Limits, PlatformFaults, PlatformScenario
from stores.tables.orders import Order
from tests.support.orders import LAG_SECONDS, Orders, count_findings, running_orders, since
from tests.support.platforms import record_permits
from tests.support.selecting import mark_long_except
from tests.support.slices import is_gapless
from tests.support.waiting import eventually
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

AGAIN_MAX = 4
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
SPAN_SECONDS = 7_200
NOTHING = dict.fromkeys(("lost", "stale", "duplicated", "invented", "regressed"), 0)
BUSY_MARKET = Changes(per_page=0.4, per_second=0.05, late_share=0.3, late_seconds=LAG_SECONDS - 10)
ROUGH = PlatformFaults(errors=0.03, resets=0.03, busy=0.02, busy_seconds=0.05)


async def settle(orders: Orders, platform: Platform, number: str) -> None:
    """Let the platform come to rest and time go by, until what happened last has been fetched."""
    platform.market.freeze()
    platform.market.clock.advance(2_000)
    for _ in range(5):
        ended = await orders.fetch(number)
        for row in await orders.slices(number):
            if row.failed_at and not row.done_at:
                window = windows.TimeWindow(start=row.start_at, end=row.end_at)
                reply = await orders.ask("POST", f"/v1/platforms/{number}/slices/{window}/redo")
                assert reply.status == 202, reply.body
        if not ended.failed and await orders.is_complete(number):
            return
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))


async def digest(orders: Orders, number: str) -> str:
    """All that is stored of a platform, as one figure."""
    statement = select(Order).where(Order.platform == number).order_by(Order.order_id)
    async with orders.services.database.session() as session:
        rows = (await session.exec(statement)).all()
    text = "".join(f"{row.order_id}{row.modified_at}{row.version}{row.digest.hex()}" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.long
async def test_nothing_is_lost_while_orders_change_and_answers_fail(
    settings: Settings, request: pytest.FixtureRequest
) -> None:
    """O1, O3, O4, O6: whatever moves while it is paged, however late it shows up within the lag."""
    seed = request.config.getoption("randomly_seed")
    async with running_orders(settings) as orders:

        async def one(n: int) -> None:
            number = f"shop-{n}"
            scenario = PlatformScenario(
                seed=seed + n,
                orders=400,
                span_seconds=SPAN_SECONDS,
                speed=8,
                crowd_share=0.2,
                crowd_seconds=60,
                milliseconds=False,
                changes=BUSY_MARKET,
                faults=ROUGH,
            )
            platform = orders.play(scenario, number)
            capability = PLAIN.model_copy(update={"paging": PLAIN.paging.model_copy(update={"size": 10})})
            await orders.set_up(number, capability=capability)
            await orders.configure(
                number, starttime=since(platform, seconds=SPAN_SECONDS), interval=300, max_rows_per_slice=30, retries=9
            )
            complete_to = EARLIEST
            for _ in range(3):
                await orders.fetch(number)
                row = await orders.row(number)
                assert row.complete_to
                assert complete_to <= row.complete_to
                complete_to = row.complete_to
                leaves = [each for each in await orders.slices(number) if each.split_at is None]
                assert is_gapless([windows.TimeWindow(start=each.start_at, end=each.end_at) for each in leaves])
            await settle(orders, platform, number)
            assert await orders.is_complete(number), await orders.status(number)
            assert count_findings(await orders.findings(number)) == NOTHING, f"seed {seed}, {number}"
            assert await orders.read_replaced_copies(number), "no order changed: nothing was shown"

        await asyncio.gather(*(one(n) for n in range(2)))


def with_quick_details(record: Capability) -> dict[str, Any]:
    """Fields that set a platform up by its record; its details have twenty turns for one, which saves two minutes."""
    if record.detail is None or record.detail.rate is None:
        return {}
    rate = record.detail.rate.model_copy(update={"per_second": 20 * record.detail.rate.per_second})
    detail = record.detail.model_copy(update={"rate": rate})
    return {"capability": record.model_copy(update={"detail": detail}).model_dump(mode="json")}


@pytest.mark.parametrize("kind", mark_long_except(KNOWN_PLATFORMS, ["shopify", "pinduoduo"]))
async def test_every_ready_platform_is_fetched_by_its_own_rules(settings: Settings, kind: Kind) -> None:
    """O1 for each record: its paging, its window, its clock, its limits, while orders change."""
    record = KNOWN_PLATFORMS[kind]
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(
            kind=kind,
            seed=7,
            # Where each is asked for by itself, fewer already have to wait for their turn.
            orders=90 if record.detail is None else 40,
            # Some list no orders that are older than three months.
            start=datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1),
            span_seconds=3_600,
            changes=Changes(per_page=0.2, late_share=0.2, late_seconds=30),
        )
        platform = orders.play(scenario, "ready")
        await orders.set_up("ready", kind=kind, **with_quick_details(record))
        await orders.configure("ready", starttime=since(platform, seconds=3_600), interval=1_700, settle_lag=180)

        await orders.fetch("ready")
        platform.market.freeze()
        platform.market.clock.advance(2_000)
        await orders.fetch("ready")

        assert await orders.is_complete("ready"), await orders.status("ready")
        assert count_findings(await orders.findings("ready")) == NOTHING
        told = platform.calls["told"]
        at_once = record.detail.rate.burst if record.detail and record.detail.rate else 0
        assert told > 1.5 * at_once, "too few waited for their turn"


@pytest.mark.long
async def test_a_slice_that_is_too_large_splits_itself_to_the_same_orders(settings: Settings) -> None:
    """O7, O10: down to crowded seconds, the leaves are the parent, and the store is what one reading gives."""
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(seed=3, orders=150, span_seconds=3_600, crowd_share=0.4, crowd_seconds=1_800)
        for number, rows in (("whole", 100_000), ("split", 12)):
            platform = orders.play(scenario, number)
            await orders.set_up(number)
            await orders.configure(
                number, starttime=since(platform, seconds=3_600), interval=600, max_rows_per_slice=rows
            )
            await orders.fetch(number)
            assert await orders.is_complete(number)
            assert count_findings(await orders.findings(number)) == NOTHING

        slices = await orders.slices("split")
        leaves = [windows.TimeWindow(start=row.start_at, end=row.end_at) for row in slices if row.split_at is None]
        assert is_gapless(leaves)
        assert min(leaf.duration for leaf in leaves) == timedelta(seconds=1)
        assert await digest(orders, "whole") == await digest(orders, "split")


@pytest.mark.long
async def test_reading_again_in_any_order_changes_nothing(settings: Settings) -> None:
    """O5: redone, swept and backfilled slices leave the store and the marks as they were."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=400, span_seconds=3_600))
        await orders.set_up()
        await orders.configure(starttime=since(platform, seconds=3_600))
        await orders.fetch()
        before, marks = await digest(orders, "shop-1"), await orders.row()

        for row in reversed(await orders.slices()):
            window = windows.TimeWindow(start=row.start_at, end=row.end_at)
            reply = await orders.ask("POST", f"/v1/platforms/shop-1/slices/{window}/redo")
            assert reply.status == 202, reply.body
        await orders.configure(starttime=since(platform, seconds=3_600), sweep_after=1)
        swept = await orders.wait_until_swept()

        after = await orders.row()
        assert swept
        assert await digest(orders, "shop-1") == before
        assert (after.claimed_to, after.complete_to) == (marks.claimed_to, marks.complete_to)
        assert {row.missed for row in await orders.slices()} == {0}


@pytest.mark.long
async def test_what_shows_up_after_the_lag_is_found_by_the_sweep(settings: Settings) -> None:
    """O2: it is counted, and a longer lag is proposed."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=50, span_seconds=3_600))
        starttime = since(platform, seconds=3_600)
        await orders.set_up()
        await orders.configure(starttime=starttime, interval=600)
        market = platform.market
        market.create(market.now_us - 1_800_000_000, late_us=1_900_000_000)
        await orders.fetch()
        assert count_findings(await orders.findings())["lost"] == 1

        market.clock.advance(400)
        market.tick()
        await orders.configure(starttime=starttime, interval=600, sweep_after=1)
        await orders.wait_until_swept()

        status = await orders.status()
        assert count_findings(await orders.findings()) == NOTHING
    assert status["orders_missed"] == 1
    assert status["proposed_settle_lag"] >= 1_800


async def test_the_rate_holds_over_all_workers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """O8: no stretch of t seconds sees more than burst + rate × t requests from all workers together.

    A request that is longer on its way than a permit may be held, as on a busy machine, adds what the rate adds
    meanwhile; each is measured.
    """
    rate, burst = 20.0, 4
    taken = record_permits(monkeypatch)
    async with running_orders(settings) as orders:
        limits = Limits(per_second=rate, burst=burst)
        platform = orders.play(PlatformScenario(orders=400, span_seconds=3_600, limits=limits))
        await orders.set_up()
        starttime = since(platform, seconds=3_600)
        await orders.configure(starttime=starttime, interval=300, requests_per_second=rate, burst=burst)
        arrived, before = platform.throttle.times, len(platform.throttle.times)
        taken.clear()
        async with running_worker(orders.api_client.settings, [names.build_slice_queue_name("shop-1")]):
            await orders.fetch()
        times = arrived[before:]
        assert await orders.is_complete()
    assert len(times) == len(taken) > 3 * burst
    longest = max(late - early for early, late in zip(sorted(taken), times, strict=True))
    meanwhile = rate * max(0.0, longest - HELD_MIN_SECONDS)
    worst = max(j - i + 1 - rate * (times[j] - times[i]) for i in range(len(times)) for j in range(i, len(times)))
    assert worst <= burst + meanwhile + 1e-6
    assert not platform.throttle.refused or meanwhile


@pytest.mark.parametrize("skew_seconds", mark_long_except([-7_200.0, 7_200.0], [7_200.0]))
async def test_a_clock_that_is_off_loses_nothing_and_is_told(settings: Settings, skew_seconds: float) -> None:
    """O11: slices go by the platform's clock, and the administrator gets an alarm."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=300, span_seconds=3_600, skew_seconds=skew_seconds))
        await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
        await orders.configure(starttime="last 1 hours")

        await orders.fetch()

        status = await orders.status()
        assert count_findings(await orders.findings()) == NOTHING
        assert status["gaps"] == []
        assert abs(status["skew_seconds"] - skew_seconds) < 10
        assert await eventually(orders.events) == ["orders.clock_off"]


RESTLESS = "does not come to rest"
DEAF = "does not heed the page"


@pytest.mark.parametrize(
    ("lie", "sentence", "hidden_slices"),
    [
        pytest.param(PlatformFaults(total_off=2), RESTLESS, 2, id="more are announced than told"),
        pytest.param(PlatformFaults(total_off=-2), None, 0, id="fewer are announced than told", marks=pytest.mark.long),
        pytest.param(PlatformFaults(drop_share=0.9), RESTLESS, 1, id="pages leave rows out", marks=pytest.mark.long),
        pytest.param(PlatformFaults(ignore_page=True), DEAF, 2, id="the page is not heeded"),
    ],
)
async def test_what_a_platform_lies_about_is_not_called_complete(
    settings: Settings, lie: PlatformFaults, sentence: str | None, hidden_slices: int
) -> None:
    """O4: a slice that the lie concerns fails with its cause and holds `complete_to` back; below, nothing is missing.

    Args:
        sentence: Part of what the failed slices say; None where the lie does no harm and all orders are there.
        hidden_slices: The least number of the two slices cannot be read.
    """
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=200, span_seconds=3_600, faults=lie))
        await orders.set_up(
            capability=PLAIN.model_copy(update={"paging": PLAIN.paging.model_copy(update={"size": 20})})
        )
        await orders.configure(starttime=since(platform, seconds=3_600), interval=1_500, retries=1)

        await orders.fetch()

        row, slices = await orders.row(), [each for each in await orders.slices() if each.split_at is None]
        failed = [each for each in slices if each.fault]
        stored = {copy.order_id for copy in await orders.read_orders()}
        claimed_us = int((row.claimed_to or EARLIEST).timestamp()) * MICRO
        truth = checker.truth(platform.ledger(), from_us=0, until_us=claimed_us)
        assert count_findings(await orders.findings()) == NOTHING, "something is missing before complete_to"
    if sentence is None:
        assert (failed, row.complete_to) == ([], row.claimed_to)
        assert stored == truth.keys()
        return
    assert len(failed) >= hidden_slices
    assert row.complete_to == min(each.start_at for each in failed)
    assert {each.fault["code"] for each in failed if each.fault} == {"platform_failed"}
    assert [each.fault["message"] for each in failed if each.fault and sentence not in each.fault["message"]] == []


@pytest.mark.long
async def test_workers_may_come_and_go_while_they_share_two_platforms(settings: Settings) -> None:
    """O9: four workers, one leaves and one comes in the middle; all is read, and hardly a slice twice."""
    async with running_orders(settings, queues=[names.QUEUE]) as orders, AsyncExitStack() as stack:
        scenario = PlatformScenario(orders=400, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=20))
        for number in ("left", "right"):
            platform = orders.play(scenario, number)
            await orders.set_up(number)
            await orders.configure(number, starttime=since(platform, seconds=SPAN_SECONDS), interval=200, threads=1)
        served = [names.build_slice_queue_name("left"), names.build_slice_queue_name("right")]
        workers = [
            await stack.enter_async_context(running_worker(orders.api_client.settings, served)) for _ in range(4)
        ]
        cycles = [await orders.cycle(number) for number in ("left", "right")]

        await orders.wait_until_done(8, "left")
        await workers[0].stop()
        await stack.enter_async_context(running_worker(orders.api_client.settings, served))
        ended = [await cycle.result() for cycle in cycles]

        assert [each.failed for each in ended] == [0, 0]
        for number in ("left", "right"):
            # A slice that the leaving worker could not finish, or a busy machine took from its reader, is read again.
            assert sum((row.attempts or 0) - 1 for row in await orders.slices(number)) <= AGAIN_MAX
            assert await orders.is_complete(number)
            assert count_findings(await orders.findings(number)) == NOTHING


@pytest.mark.long
async def test_threads_are_read_at_a_time_and_a_change_acts_at_once(settings: Settings) -> None:
    """No more slices are under way on a worker than configured, and soon as many as that."""
    async with running_orders(settings) as orders:
        platform = orders.play(
            PlatformScenario(orders=400, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=150))
        )
        await orders.set_up()
        starttime = since(platform, seconds=SPAN_SECONDS)
        await orders.configure(starttime=starttime, interval=200, threads=1)
        cycle = await orders.cycle()
        # What was begun before the configuration came is done by then.
        await orders.wait_until_done(3)
        await eventually(lambda: orders.has_under_way(1))
        assert await orders.most_under_way(seconds=1.0) <= 1

        await orders.configure(starttime=starttime, interval=200, threads=6)

        await eventually(lambda: orders.has_under_way(6))
        assert await orders.most_under_way(seconds=1.0) <= 6
        await cycle.result()


@pytest.mark.long
async def test_configuration_may_change_while_slices_are_read(settings: Settings) -> None:
    """O12: the next slice goes by it, each slice notes its version, and no gap comes of it."""
    async with running_orders(settings, slices_ahead=3) as orders:
        scenario = PlatformScenario(orders=600, span_seconds=3_600, faults=PlatformFaults(slow_ms=300))
        platform = orders.play(scenario)
        await orders.set_up()
        starttime = since(platform, seconds=3_600)
        await orders.configure(starttime=starttime, interval=300, threads=1)
        cycle = await orders.cycle()
        for interval, overlap in ((200, 5), (450, 20), (120, 0)):
            await orders.wait_for_slices(len(await orders.slices()) + 2)
            await orders.configure(starttime=starttime, interval=interval, overlap=overlap, threads=interval // 100)
        platform.set(scenario.model_copy(update={"faults": PlatformFaults()}))
        await cycle.result()

        slices = await orders.slices()
        assert count_findings(await orders.findings()) == NOTHING
        assert await orders.is_complete()
    assert is_gapless([windows.TimeWindow(start=row.start_at, end=row.end_at) for row in slices])
    assert len({row.settings_version for row in slices}) > 1


def test_the_records_of_this_test_are_all_that_are_built_in() -> None:
    """Five ready platforms, each a complete record."""
    assert all(isinstance(each, Capability) for each in KNOWN_PLATFORMS.values())
    assert set(KNOWN_PLATFORMS) == {"taobao", "pinduoduo", "shopify", "woocommerce", "amazon"}
