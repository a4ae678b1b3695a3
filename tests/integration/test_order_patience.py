"""Slices of platforms that are slow, or fail for a while: they keep their place, and what failed is made again."""

from __future__ import annotations

import json

import pytest

from domain.orders import names
from domain.orders.capability import Capability
from domain.orders.declarations import RateLimit
from domain.orders.known_platforms import AMAZON
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import Changes, Limits, PlatformFaults, PlatformScenario
from stores.orders import ledger
from tests.support.orders import CREDENTIALS, Orders, count_findings, running_orders, since
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
NOTHING = dict.fromkeys(("lost", "stale", "duplicated", "invented", "regressed"), 0)
TIMEOUT_SECONDS = 10
RATE = 1.5
SLOW = RateLimit(per_second=RATE, burst=1)
BORNE = Limits(per_second=RATE, burst=3)
"""What platforms refuse nothing of: on a busy machine requests arrive closer to each other than they were sent."""


def make_paged_record(record: Capability, size: int) -> Capability:
    """A record of small pages and a slow rate, as a kind of its own."""
    paging = record.paging.model_copy(update={"size": size})
    return record.model_copy(update={"kind": "plain", "paging": paging, "rate": SLOW})


async def start_slow_platform(orders: Orders, capability: Capability, scenario: PlatformScenario) -> Platform:
    """A platform whose slices take several times as long as one attempt may take."""
    platform = orders.play(scenario)
    await orders.set_up(capability=capability)
    starttime = since(platform, seconds=SPAN_SECONDS)
    await orders.configure(starttime=starttime, interval=3_400, settle_lag=180, timeout=TIMEOUT_SECONDS)
    return platform


@pytest.mark.long
async def test_a_slice_makes_progress_at_any_rate(settings: Settings) -> None:
    """O1, O8: it is stopped again and again, no page is asked for twice, and no wait counts as a failure."""
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(orders=100, span_seconds=SPAN_SECONDS, limits=BORNE)
        platform = await start_slow_platform(orders, make_paged_record(PLAIN, 5), scenario)

        ended = await orders.fetch()

        [row] = await orders.slices()
        assert (ended.finished, ended.failed) == (1, 0)
        assert row.attempts > 1
        assert row.pages == -(-(row.orders or 0) // 5)
        # The clock is asked once an attempt, and before; beside that, each page once, the count before and after, and
        # the page behind the last one, because no page was full yet.
        asked_for_clock = platform.calls["told"] - (row.pages or 0) - 3
        assert 0 <= asked_for_clock <= row.attempts + 2
        assert platform.throttle.refused == 0
        assert count_findings(await orders.findings()) == NOTHING
        assert await orders.services.objects.list(names.STAGING) == []


@pytest.mark.long
async def test_a_place_that_has_expired_is_given_up(settings: Settings) -> None:
    """A token that leads nowhere any more sends a slice back to its beginning, not into the failed set."""
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(
            kind="amazon",
            orders=60,
            span_seconds=SPAN_SECONDS,
            limits=BORNE,
            faults=PlatformFaults(page_token_seconds=600),
        )
        # Without its items: they are counted apart, and not what this is about.
        record = make_paged_record(AMAZON, 5).model_copy(update={"detail": None})
        platform = await start_slow_platform(orders, record, scenario)
        cycle = await orders.cycle()
        await eventually(lambda: platform.calls["told"] >= 4)
        platform.market.clock.advance(601)

        await cycle.result()
        await orders.fetch()

        assert platform.calls["400"] == 1
        assert await orders.is_complete()
        assert count_findings(await orders.findings()) == NOTHING


async def test_credentials_that_are_renewed_while_a_slice_waits_let_it_go_on(settings: Settings) -> None:
    """A token that expires in mid-run, and a file that is renewed some time later: nothing fails for good."""
    async with running_orders(settings) as orders:
        scenario = PlatformScenario(orders=100, span_seconds=SPAN_SECONDS, faults=PlatformFaults(token_requests=8))
        platform = orders.play(scenario)
        await orders.set_up(capability=PLAIN.model_copy(update={"paging": PLAIN.paging.model_copy(update={"size": 5})}))
        await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), interval=3_500, retryintv=1, retries=9)
        cycle = await orders.cycle()

        async def is_done() -> bool:
            folder = orders.api_client.settings.orders.credentials_folder
            renewed = platform.dialect.credentials(platform.tokens.good)
            (folder / f"{CREDENTIALS}.json").write_text(json.dumps(renewed))
            return all(row.done_at for row in await orders.slices())

        async def is_told() -> bool:
            [row] = await orders.slices()
            path = f"/v1/platforms/{row.platform}/slices/{ledger.build_window(row)}"
            reading = (await orders.ask("GET", path)).body["reading"]
            return reading["fault"] is not None and reading["attempt"] > 0 and reading["next_attempt_at"] is not None

        await eventually(lambda: platform.calls["401"] >= 2)
        await eventually(is_told)
        await eventually(is_done)
        await cycle.result()

        assert platform.tokens.generation > 1
        assert count_findings(await orders.findings()) == NOTHING


@pytest.mark.long
async def test_a_sweep_that_failed_is_made_again(settings: Settings) -> None:
    """O2: what showed up late is found in the end, although the first sweeps failed."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=50, span_seconds=SPAN_SECONDS))
        starttime = since(platform, seconds=SPAN_SECONDS)
        await orders.set_up()
        await orders.configure(starttime=starttime, interval=3_500)
        market = platform.market
        market.create(market.now_us - 1_800_000_000, late_us=1_900_000_000)
        await orders.fetch()
        market.clock.advance(400)
        market.tick()
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(errors=1), "changes": Changes()}))
        await orders.configure(starttime=starttime, interval=3_500, sweep_after=1, retries=0)

        async def has_failed() -> bool:
            await orders.fetch()
            [row, *_] = await orders.slices()
            return row.failed_at is not None

        await eventually(has_failed)
        [row, *_] = await orders.slices()
        assert (row.swept_at, bool(row.done_at)) == (None, True)
        assert (await orders.status())["slices_failed"] == 0

        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
        await orders.wait_until_swept()

        [row, *_] = await orders.slices()
        assert (row.missed, row.failed_at, row.fault) == (1, None, None)
        assert count_findings(await orders.findings()) == NOTHING
