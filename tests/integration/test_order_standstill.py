"""Platforms that are not fetched: because they are paused, or because their clock cannot be read."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import Gauge
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutType
from temporalio.exceptions import TimeoutError as EngineTimeout

from activities.orders import activities, slice_attempts
from clients.platforms import PlatformBusy
from domain.orders import names
from domain.orders.windows import TimeWindow
from infra import metrics
from infra.outages import DatabaseUnreachable
from infra.settings import Settings
from sims.platforms.market import Market, Range
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.orders import health
from stores.tables.orders import OrderPlatform
from tests.support.orders import NUMBER, SIGNED, Orders, count_findings, gauge, running_orders, since
from tests.support.waiting import PATIENCE_SECONDS, eventually
from workflows.activity_calls import CLOCK_READING
from workflows.orders import cycle

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600


async def set_up_platform(orders: Orders, scenario: PlatformScenario, **options: Any) -> None:
    """A platform with an hour of orders, paused and not yet fetched; its administrator receives alarms."""
    platform = orders.play(scenario)
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
    await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), **options)


async def test_a_pause_says_who_paused_and_why(settings: Settings) -> None:
    """Both are demanded, shown with the platform, and kept in the audit log; so with a resumption."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=1, span_seconds=SPAN_SECONDS))
        for verb, is_paused in (("pause", True), ("resume", False)):
            address = f"/v1/platforms/{NUMBER}/{verb}"
            refused = await orders.ask("POST", address, json={})
            done = await orders.ask("POST", address, json={"who": "ann", "reason": "stocktaking"})
            [entry] = (await orders.ask("GET", "/v1/audit", params={"limit": "1"})).body["items"]
            assert (refused.status, done.status, done.body["is_paused"]) == (422, 200, is_paused)
            assert done.body["note"] == "ann: stocktaking"
            assert (entry["who"], entry["reason"]) == ("ann", "stocktaking")
        tried = {"all": True, "dry_run": True, "who": "ben", "reason": "to see"}
        assert (await orders.ask("POST", f"/v1/platforms/{NUMBER}/slices:redo", json=tried)).status == 202
        [entry] = (await orders.ask("GET", "/v1/audit", params={"limit": "1"})).body["items"]
        assert entry["who"] == "ann", "a dry run is no action"


@pytest.mark.long
async def test_a_platform_is_set_up_paused(settings: Settings) -> None:
    """Its schedule has no next run before it is resumed; sent again without the field, a platform keeps its state.

    It is resumed once it is configured, be it by nothing: where it begins is kept for good.
    """
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=1, span_seconds=SPAN_SECONDS))
        states = [await orders.set_up(), await orders.set_up(is_paused=False)]
        early = [
            await orders.ask("POST", f"/v1/platforms/{NUMBER}/resume", json=SIGNED),
            await orders.ask("POST", f"/v1/platforms/{NUMBER}/trigger"),
        ]
        states.append(await orders.status())
        listed = await orders.ask("GET", "/v1/platforms")
        await eventually(lambda: _is_listed_as_paused(orders))
        configured = await orders.ask("PATCH", f"/v1/platforms/{NUMBER}/config", json={})
        resumed = await orders.ask("POST", f"/v1/platforms/{NUMBER}/resume", json=SIGNED)
        states += [await orders.set_up(is_paused=False), await orders.set_up(is_paused=True)]
        refused = await orders.ask("POST", f"/v1/platforms/{NUMBER}/trigger")

    assert [state["is_paused"] for state in states] == [True, True, True, False, True]
    assert [bool(state["next_runs"]) for state in states] == [False, False, False, True, False]
    assert [(each.status, each.code) for each in early] == [(409, "platform_not_configured")] * 2
    assert configured.body["version"] > 0
    assert [each["is_configured"] for each in (listed.body["items"][0], states[2], states[4])] == [False, False, True]
    assert states[0]["note"] == "set up paused through the API"
    assert resumed.body["is_paused"] is False
    assert refused.code == "platform_paused"


async def _is_listed_as_paused(orders: Orders) -> bool:
    [listed] = (await orders.ask("GET", "/v1/platforms")).body["items"]
    return listed["is_paused"] is True


async def test_a_platform_that_is_not_set_up_paused_begins_with_defaults(settings: Settings) -> None:
    """It may be paused and resumed without a configuration of its own: its beginning was not waited for."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=1, span_seconds=SPAN_SECONDS))
        begun = await orders.set_up(is_paused=False)
        replies = [
            await orders.ask("POST", f"/v1/platforms/{NUMBER}/{action}", json=SIGNED) for action in ("pause", "resume")
        ]
        config = await orders.ask("GET", f"/v1/platforms/{NUMBER}/config")
    assert (begun["is_paused"], [each.body["is_paused"] for each in replies]) == (False, [True, False])
    assert config.body["effective"]["starttime"] == {"value": "last 3 months", "origin": "built_in"}


@pytest.mark.long
async def test_a_pause_holds_within_one_claim(settings: Settings) -> None:
    """A cycle that has months before it claims nothing more; resumed, it goes on where it was."""
    slow = PlatformScenario(orders=300, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=300))
    async with running_orders(settings, slices_ahead=8) as orders:
        await set_up_platform(orders, slow, interval=60, overlap=0, threads=2)
        await orders.ask("POST", f"/v1/platforms/{NUMBER}/resume", json=SIGNED)
        await orders.ask("POST", f"/v1/platforms/{NUMBER}/trigger")
        await orders.wait_for_slices(10)

        await orders.ask("POST", f"/v1/platforms/{NUMBER}/pause", json=SIGNED)
        orders.platforms.by_number[NUMBER].set(slow.model_copy(update={"faults": PlatformFaults()}))
        status = await orders.status()
        run = orders.engine.get_workflow_handle(status["workflow_id"])
        await asyncio.wait_for(run.result(), PATIENCE_SECONDS)
        claimed = len(await orders.slices())
        refused = await orders.ask("POST", f"/v1/platforms/{NUMBER}/trigger")
        assert claimed < 40, "the pause came too late to show anything"
        assert (refused.status, refused.body["code"]) == (409, "platform_paused")

        await orders.fetch()  # by hand: a pause does not hold back a cycle that is started so
        assert len(await orders.slices()) > claimed
        await eventually(orders.is_complete)
        assert count_findings(await orders.findings())["lost"] == 0


@pytest.mark.long
async def test_a_platform_without_a_clock_is_told_of_and_reads_what_is_claimed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cycle fails and says why, sends an alarm once that lasts, and slices that need no clock are read."""
    soon = RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=3)
    monkeypatch.setattr(cycle, "CLOCK_READING", {**CLOCK_READING, "retry_policy": soon})
    async with running_orders(settings) as orders:
        broken = PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1))
        await set_up_platform(orders, broken, interval=1_500, retries=0)
        await orders.fetch()
        [first, *_] = [row for row in await orders.slices() if row.failed_at is not None]
        name = TimeWindow(start=first.start_at, end=first.end_at)
        assert (await orders.ask("POST", f"/v1/platforms/{NUMBER}/slices/{name}/split")).status == 200
        opened = [row for row in await orders.slices() if not (row.done_at or row.failed_at or row.split_at)]
        assert len(opened) == 2

        platform = orders.platforms.by_number[NUMBER]
        platform.set(broken.model_copy(update={"faults": PlatformFaults(clock_down=True)}))
        for _ in range(2):
            with pytest.raises(WorkflowFailureError) as failure:
                await orders.fetch()
        status, rows = await orders.status(), await orders.slices()

        assert "the clock has stopped" in str(failure.value.cause)
        assert {row.start_at for row in opened} <= {row.start_at for row in rows if row.done_at}
        assert "the clock has stopped" in status["clock_fault"]["message"]
        assert status["clock_failed_since"]
        assert await eventually(lambda: gauge(metrics.CLOCKS_UNREAD) == 1)
        assert "clock_unread" in await concerns(orders)
        assert "orders.clock_unread" not in await orders.events()

        async def is_told() -> bool:
            return "orders.clock_unread" in await orders.events()

        monkeypatch.setattr(activities, "CLOCK_PATIENCE", timedelta(0))
        for _ in range(2):
            with pytest.raises(WorkflowFailureError):
                await orders.fetch()
        await eventually(is_told)
        assert (await orders.events()).count("orders.clock_unread") == 1

        platform.set(broken.model_copy(update={"faults": PlatformFaults()}))
        await orders.fetch()
        healed = await orders.status()
        assert (healed["clock_fault"], healed["clock_failed_since"]) == (None, None)
        assert await eventually(lambda: gauge(metrics.CLOCKS_UNREAD) == 0)

        async def is_no_concern() -> bool:
            return "clock_unread" not in await concerns(orders)

        # The overview is read anew after a while, which is longer where reading it takes long.
        assert await eventually(is_no_concern)


async def test_a_silent_platform_is_told_of_at_the_first_attempt(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the next attempt, in words that name its address and how long it was waited for."""
    long = RetryPolicy(initial_interval=timedelta(minutes=10), maximum_attempts=3)
    monkeypatch.setattr(cycle, "CLOCK_READING", {**CLOCK_READING, "retry_policy": long})
    monkeypatch.setattr(activities, "CLOCK_ANSWER_SECONDS", 0.2)
    async with running_orders(settings) as orders:
        silent = PlatformScenario(orders=1, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=600_000))
        await set_up_platform(orders, silent)
        run = await orders.cycle()

        async def is_shown() -> bool:
            return (await orders.status())["clock_fault"] is not None

        assert await eventually(is_shown)
        fault = (await orders.status())["clock_fault"]
        await run.terminate()
    assert fault["code"] == "platform_busy"
    assert (
        f"{orders.platforms.base.removeprefix('http://')} did not finish its answer within 0.2 seconds"
        in fault["message"]
    )
    assert "does not answer" in fault["hint"]


async def test_an_outage_of_ours_is_no_fault_of_a_platforms_clock(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cycle fails, says that the fault is not the platform's, and records nothing against it."""
    soon = RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=2)
    monkeypatch.setattr(cycle, "CLOCK_READING", {**CLOCK_READING, "retry_policy": soon})

    async def fail(*_: Any) -> None:
        raise DatabaseUnreachable("PostgreSQL accepts no connection")

    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=1, span_seconds=SPAN_SECONDS))
        monkeypatch.setattr(health, "record_clock_skew_and_clear_failure", fail)
        with pytest.raises(WorkflowFailureError) as failure:
            await orders.fetch()
        status = await orders.status()
    assert "PostgreSQL does not serve at present" in str(failure.value.cause)
    assert (status["clock_fault"], status["clock_failed_since"]) == (None, None)


@pytest.mark.parametrize("lost", [TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE, TimeoutType.SCHEDULE_TO_START])
def test_a_lost_reading_of_the_clock_is_no_fault_of_the_platform(lost: TimeoutType) -> None:
    """The worker was lost or held up, or there is none: nothing is known of the clock."""
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="order_clock",
        activity_id="1",
        retry_state=None,
    )
    error.__cause__ = EngineTimeout("timed out", type=lost, last_heartbeat_details=[])
    fault, sentence = cycle._get_fault_and_sentence_of_clock_failure(error)
    assert fault is None
    assert "orker" in sentence


def test_a_limit_of_ours_is_no_fault_of_the_platform_s_clock() -> None:
    """The rate or the quota is used up by slices and reports: the clock itself says nothing wrong."""
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="order_clock",
        activity_id="1",
        retry_state=None,
    )
    busy = PlatformBusy("The rate is used up.", retry_after_seconds=9)
    busy.is_local = True
    error.__cause__ = slice_attempts.to_application_error(slice_attempts.to_attempt_failure(busy))
    assert cycle._get_fault_and_sentence_of_clock_failure(error) == (None, "The rate is used up.")


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("clock_failed_since", metrics.CLOCKS_UNREAD),
        ("credentials_failed_since", metrics.CREDENTIALS_REFUSED),
        ("unserved_since", metrics.PLATFORMS_UNSERVED),
    ],
)
async def test_every_worker_shows_what_another_has_noted(settings: Settings, column: str, shown: Gauge) -> None:
    """The database is what they have in common: what one process notes, all show, and none goes on when it is over."""
    async with running_orders(settings, queues=[names.QUEUE]) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up()
        for value in (1, 0):
            async with orders.services.database.session() as session:
                row = await session.get_one(OrderPlatform, NUMBER)
                setattr(row, column, datetime.now(UTC) if value else None)
                session.add(row)
            assert await eventually(lambda value=value: gauge(shown) == value)  # type: ignore[misc]


def move_one(market: Market, older_than: timedelta) -> None:
    """Have an order of each slice so old modified while that is read, between the count of its orders and a page."""
    stir, now_us = market.stir, market.now_us
    least_us, slice_us = older_than // timedelta(microseconds=1), 600_000_000
    looks = Counter[int]()

    def move(window: Range) -> None:
        stir(window)
        for oldest in market.ascending(window, 0, 1):
            age_us = now_us - market.shown.modified[oldest]
            looks[age_us // slice_us] += 1
            if age_us >= least_us and looks[age_us // slice_us] == 2:
                market.modify(oldest, market.now_us)

    market.stir = move  # type: ignore[method-assign]


async def concerns(orders: Orders) -> set[str]:
    """The concerns that the overview shows."""
    overview = (await orders.ask("GET", "/v1/overview")).body
    [shown] = [each for each in overview["systems"] if each["system"] == "orders"]
    return {each["kind"] for each in shown["concerns"]}


async def test_what_was_passed_by_is_not_taken_for_late(settings: Settings) -> None:
    """A sweep finds it all the same; a lag is proposed only where nothing had moved, and only while it would help."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=50, span_seconds=SPAN_SECONDS))
        await orders.set_up()
        options: dict[str, Any] = {"starttime": since(platform, seconds=SPAN_SECONDS), "interval": 600}
        await orders.configure(**options)
        for minutes in (20, 50):
            platform.market.create(platform.market.now_us - minutes * 60_000_000, late_us=(minutes + 3) * 60_000_000)
        move_one(platform.market, older_than=timedelta(minutes=45))
        await orders.fetch()
        passes = [row.passes or 0 for row in await orders.slices()]
        assert max(passes[:2]) > 1, "an order left an old slice while that was read"
        assert passes[-2:] == [1, 1]
        platform.market.clock.advance(240)
        platform.market.tick()

        await orders.configure(**options, sweep_after=1)
        await orders.wait_until_swept()
        proposed = await orders.status()
        await orders.configure(**options, settle_lag=proposed["proposed_settle_lag"])
        settled = await orders.status()

    assert proposed["orders_missed"] == 2
    assert 1.5 * 20 * 60 <= proposed["proposed_settle_lag"] < 1.5 * 23 * 60
    assert settled["proposed_settle_lag"] is None
