"""Permits to a platform: its rate and its quota hold over several workers, measured by the platform itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from clients.http import GuardedClient
from clients.platforms import (
    PlatformBusy,
    PlatformConnector,
    PlatformConnectorFactory,
    RequestPermits,
    build_day_bucket_name,
    build_rate_bucket_name,
)
from domain.orders.access import Account, Credentials
from domain.orders.declarations import RateLimit
from domain.orders.windows import TimeWindow
from infra.database import Database
from infra.limits import DatabaseLimiter
from infra.settings import EgressGuardSettings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import Limits, PlatformScenario
from sims.platforms.server import running_platforms
from tests.support.platforms import SMALL_PAGES, record_permits
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

WORKERS = 4
ON_THE_WAY_SECONDS = 0.3
"""How much longer one request may be on its way than another on a machine that is not held up."""


LASTING = RateLimit(per_second=1_000, burst=60_000)
"""What is taken of it counts for a minute, however slow a test is."""


@pytest.fixture
async def limiters(database: Database) -> AsyncIterator[list[DatabaseLimiter]]:
    """As separate workers have them."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(WORKERS):
            own = Database(database.settings)
            stack.push_async_callback(own.close)
            found.append(DatabaseLimiter(own))
        yield found


async def _credentials(renew: bool) -> Credentials:
    return Credentials.model_validate({"token": "token-of-this-shop-1"})


async def _read(connector: PlatformConnector, window: TimeWindow) -> int:
    return sum(
        [len(page.orders) async for page in connector.iterate_pages(window, await connector.fetch_row_count(window))]
    )


def most_within(times: list[float], seconds: float) -> int:
    """The most requests that any stretch of this many seconds saw."""
    return max(sum(begin <= each < begin + seconds for each in times) for begin in times)


async def test_a_rate_holds_over_all_workers(limiters: list[DatabaseLimiter], monkeypatch: pytest.MonkeyPatch) -> None:
    """No stretch of any length sees more than the burst and what the rate adds.

    A request that is on its way for a while adds what the rate adds meanwhile; each is measured.
    """
    rate = RateLimit(per_second=40, burst=20)
    taken = record_permits(monkeypatch)
    async with running_platforms() as sims, GuardedClient(EgressGuardSettings(allow=["127.0.0.0/8"])) as http:
        limits = Limits(per_second=rate.per_second, burst=rate.burst)
        platform = sims.add("7", PlatformScenario(orders=2_000, span_seconds=3_600, limits=limits))
        record = PLAIN.model_copy(update=SMALL_PAGES)
        connectors = [
            PlatformConnectorFactory(http, limiter).build_connector(
                record, Account("7", "shop", sims.url("7")), _credentials, rate=rate
            )
            for limiter in limiters
        ]
        ends = await connectors[0].fetch_platform_time()
        window = TimeWindow(start=platform.scenario.start, end=ends)
        rows = await asyncio.gather(*(_read(connector, window) for connector in connectors))

        assert rows == [2_000] * WORKERS
        times = platform.throttle.times
        assert len(times) == len(taken) > 2 * rate.burst
        on_the_way = max(ON_THE_WAY_SECONDS, *(at - since for since, at in zip(sorted(taken), times, strict=True)))
        for seconds in (0.1, 0.5, 1.0, 2.0):
            assert most_within(times, seconds) <= rate.burst + rate.per_second * (seconds + on_the_way)


async def test_a_quota_of_a_day_is_spent_once(limiters: list[DatabaseLimiter]) -> None:
    """Over all workers together; then each is asked to come back later, and when."""
    rate = RateLimit(per_second=1_000, burst=100, per_day=50)
    permits = [RequestPermits(limiter, "7", rate) for limiter in limiters]
    taken = 0

    async def take_all(mine: RequestPermits) -> None:
        nonlocal taken
        while True:
            await mine.wait_for_permit()
            taken += 1

    ends = await asyncio.gather(*map(take_all, permits), return_exceptions=True)
    for end in ends:
        assert isinstance(end, PlatformBusy)
        assert "50 a day" in str(end)
        assert (end.retry_after_seconds or 0) > 80_000
    assert 0 < taken <= 50
    assert await limiters[0].read_spent_amount(build_day_bucket_name("7")) == 50


async def test_requests_of_a_day_are_counted_without_a_quota(limiters: list[DatabaseLimiter]) -> None:
    """So that an operator sees what a day costs before there is one; a quota that is set later counts them."""
    open_ended = RateLimit(per_second=1_000, burst=100)
    permits = [RequestPermits(limiter, "7", open_ended) for limiter in limiters]
    for mine in permits:
        for _ in range(5):
            await mine.wait_for_permit()
    counted = await limiters[0].read_spent_amount(build_day_bucket_name("7"))
    assert counted >= 5 * len(permits)
    with pytest.raises(PlatformBusy, match="a day"):
        await RequestPermits(
            limiters[0], "7", RateLimit(per_second=1_000, burst=100, per_day=counted)
        ).wait_for_permit()


async def test_a_long_wait_is_told_and_a_short_one_waited_for(limiters: list[DatabaseLimiter]) -> None:
    """One request in a minute: the second is for a timer. Ten in a second: the second comes soon."""
    slow = RequestPermits(limiters[0], "slow", RateLimit(per_second=1 / 60))
    await slow.wait_for_permit()
    with pytest.raises(PlatformBusy) as busy:
        await slow.wait_for_permit()
    assert 50 < (busy.value.retry_after_seconds or 0) <= 62
    quick = RequestPermits(limiters[0], "quick", RateLimit(per_second=10))
    for _ in range(3):
        await quick.wait_for_permit()
    assert await limiters[0].read_spent_amount(build_rate_bucket_name("slow")) == 1


async def wait_until_worthless(permits: RequestPermits) -> None:
    """Until what it holds has expired."""
    loop = asyncio.get_running_loop()
    late = loop.time() + permits.held_seconds
    await eventually(lambda: loop.time() > late)


async def test_batches_grow_with_their_use_and_shrink_without(limiters: list[DatabaseLimiter]) -> None:
    """Many requests in a row cost few questions; one now and then takes no more than itself from the others."""
    permits = RequestPermits(limiters[0], "7", LASTING)
    for _ in range(100):
        await permits.wait_for_permit()
    taken = await limiters[0].read_spent_amount(build_rate_bucket_name("7"))
    assert 100 <= taken < 300
    for turn in range(5):
        await wait_until_worthless(permits)
        before = await limiters[0].read_spent_amount(build_rate_bucket_name("7"))
        await permits.wait_for_permit()
        spent = await limiters[0].read_spent_amount(build_rate_bucket_name("7")) - before
        assert turn < 2 or spent == 1


async def test_permits_that_were_not_used_in_time_are_worth_nothing(limiters: list[DatabaseLimiter]) -> None:
    """They count from when they were taken; used later, they would break the rate."""
    permits = RequestPermits(limiters[0], "7", LASTING)
    used = 0
    while await limiters[0].read_spent_amount(build_rate_bucket_name("7")) <= used:
        await permits.wait_for_permit()
        used += 1
    taken = await limiters[0].read_spent_amount(build_rate_bucket_name("7"))
    await wait_until_worthless(permits)
    await permits.wait_for_permit()
    assert await limiters[0].read_spent_amount(build_rate_bucket_name("7")) > taken
