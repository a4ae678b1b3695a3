"""The connector against each platform's rules: everything that a window holds, exactly as it was sent."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from activities.orders import slice_attempts
from clients.http import GuardedClient
from clients.platforms import PlatformConnectorFactory, PlatformRefused, TooManyRows
from domain.orders.access import Account, Credentials
from domain.orders.capability import Capability
from domain.orders.known_platforms import TAOBAO
from domain.orders.windows import TimeWindow
from infra.settings import EgressGuardSettings
from sims.platforms import checker
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN, WHOLE
from sims.platforms.scenario import Changes, Kind, PlatformFaults, PlatformScenario
from sims.platforms.server import running_platforms
from tests.support.platforms import (
    KINDS,
    QUICK,
    SMALL_PAGES,
    OpenLimiter,
    list_orders,
    newest_copies,
    running_connector,
)

CROWDED: dict[str, Any] = {"orders": 4_000, "span_seconds": 7_200, "crowd_share": 0.3, "crowd_seconds": 600}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_quiet_window_is_told_whole_and_once(kind: Kind, seed: int) -> None:
    """Over many pages, with crowds in the very seconds at its edges, nothing is lost, listed twice or from outside."""
    async with running_connector(kind=kind, seed=seed, **CROWDED) as here:
        window = here.window(1_200, until_seconds_ago=600)
        pages = await here.read(window)
        assert len(pages) > 2
        assert checker.check(here.truth(window), newest_copies(pages)).is_clean
        assert len(list_orders(pages)) == len(newest_copies(pages))
        assert sum(page.outside for page in pages) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_windows_that_follow_each_other_share_no_order(kind: Kind) -> None:
    """An order in the boundary's second belongs to the later one, and to it alone."""
    async with running_connector(kind=kind, **CROWDED) as here:
        whole = here.window(1_200, until_seconds_ago=600)
        middle = whole.start + timedelta(seconds=600)
        told = [
            newest_copies(await here.read(TimeWindow(start=start, end=end)))
            for start, end in ((whole.start, middle), (middle, whole.end))
        ]
        assert checker.check(here.truth(whole), told[0] + told[1]).is_clean


async def test_orders_between_two_seconds_are_not_lost() -> None:
    """A platform that keeps milliseconds and is asked by seconds is asked for one second more."""
    async with running_connector(milliseconds=True, orders=5_000, span_seconds=3_600) as here:
        whole = here.window(600)
        middle = whole.start + timedelta(seconds=300)
        told = [
            newest_copies(await here.read(TimeWindow(start=start, end=end)))
            for start, end in ((whole.start, middle), (middle, whole.end))
        ]
        findings = checker.check(here.truth(whole), told[0] + told[1], known=checker.truth(here.platform.ledger()))
        assert (findings.lost, findings.stale, findings.invented) == ([], [], [])


@pytest.mark.parametrize("kind", KINDS)
async def test_an_order_stays_the_bytes_that_were_sent(kind: Kind) -> None:
    """Ids that no float holds and amounts to the cent come out as they went in, and are in the page's bytes."""
    async with running_connector(kind=kind, orders=300, span_seconds=600) as here:
        pages = await here.read(here.window(300, until_seconds_ago=200))
        told = list_orders(pages)
        assert told
        for page in pages:
            assert all(order.raw in page.body for order in page.orders)
        for order in told:
            values = json.loads(order.raw, parse_float=Decimal, parse_int=str)
            assert order.order_id in values.values()
            assert str(values.get("tax", "0.10")) == "0.10"
            assert (order.platform, order.shop) == ("7", "shop-1")
        if kind != "amazon":
            assert int(told[0].order_id) > 2**53


@pytest.mark.parametrize("kind", KINDS)
async def test_the_clock_is_the_platforms(kind: Kind) -> None:
    """Hours apart from ours, and known so."""
    async with running_connector(kind=kind, skew_seconds=-7_200, orders=0) as here:
        now = await here.connector.fetch_platform_time()
        told_us = round(now.timestamp() * MICRO)
        assert abs(told_us - here.platform.market.now_us) < 2 * MICRO
        assert abs(here.connector.clock_skew.total_seconds() + 7_200) < 30
        assert now < datetime.now(UTC) - timedelta(seconds=7_100)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_count_is_the_number_of_orders(kind: Kind) -> None:
    """Where a platform counts at all; it costs one request."""
    async with running_connector(kind=kind, **CROWDED) as here:
        window = here.window(1_200)
        await here.connector.fetch_platform_time()
        before = here.platform.stats()["requests"]
        count = await here.connector.fetch_row_count(window)
        assert count == (None if kind == "amazon" else len(here.truth(window)))
        assert here.platform.stats()["requests"] - before == (0 if kind == "amazon" else 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_empty_window_has_no_orders(kind: Kind) -> None:
    """Not even a page that is missing."""
    async with running_connector(kind=kind, orders=0) as here:
        pages = await here.read(here.window(600))
        assert list_orders(pages) == []
        assert len(pages) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
async def test_orders_that_leave_while_they_are_read_take_no_other_with_them(kind: Kind, seed: int) -> None:
    """Modified again and again during the walk: all that stay in the window are listed."""
    changes = Changes(per_page=0.7, created_share=0, in_window_share=1)
    async with running_connector(kind=kind, seed=seed, orders=6_000, span_seconds=7_200, changes=changes) as here:
        window = here.window(1_200)
        pages = await here.read(window)
        assert here.platform.market.changes
        findings = checker.check(here.truth(window), newest_copies(pages), known=checker.truth(here.platform.ledger()))
        assert findings.lost == []
        assert findings.stale == []


async def test_late_orders_are_found_by_reading_again() -> None:
    """Orders come and go during each pass; another one lists what they pushed behind its back."""
    changes = Changes(per_page=0.3, created_share=0.5, in_window_share=1, late_share=1, late_seconds=1)
    async with running_connector(seed=3, orders=6_000, span_seconds=7_200, changes=changes, speed=1_000) as here:
        window = here.window(1_200)
        pages = [page for _ in range(4) for page in await here.read(window)]
        assert checker.check(here.truth(window), newest_copies(pages)).lost == []


async def test_a_window_over_the_platforms_cap_is_to_be_split() -> None:
    """Shopify stops after 25,000 orders without a word, and counts to 25,001."""
    async with running_connector(kind="shopify", orders=26_000, span_seconds=3_600) as here:
        whole = here.window(3_600, until_seconds_ago=0)
        assert await here.connector.fetch_row_count(whole) == 25_001
        with pytest.raises(TooManyRows, match="Split the window") as refused:
            await here.read(whole)
        assert refused.value.rows == 25_000
        half = TimeWindow(start=whole.start, end=whole.start + timedelta(seconds=1_800))
        assert checker.check(here.truth(half), newest_copies(await here.read(half))).is_clean


async def test_numbered_pages_over_the_cap_are_not_begun() -> None:
    """The total shows it before the first page is requested."""
    paging = PLAIN.paging.model_copy(update={"rows_max": 2_000})
    async with running_connector(PLAIN.model_copy(update={"paging": paging}), orders=5_000, rows_max=2_000) as here:
        with pytest.raises(TooManyRows):
            await here.read(here.window(86_400))
        assert here.platform.stats()["requests"] == 1


async def test_a_total_that_is_the_cap_may_be_capped_itself() -> None:
    """Many platforms count no further than they list: that there are no more orders is not believed."""
    paging = PLAIN.paging.model_copy(update={"size": 100, "rows_max": 200})
    record = PLAIN.model_copy(update={"paging": paging})
    async with running_connector(record, orders=200, span_seconds=600, rows_max=200) as here:
        window = here.window(1_200, until_seconds_ago=0)
        assert await here.connector.fetch_row_count(window) == 200
        with pytest.raises(TooManyRows):
            await here.read(window)


async def test_a_list_of_parts_is_made_whole_by_a_second_call() -> None:
    """Taobao's list leaves out what its detail call returns."""
    async with running_connector(kind="taobao", orders=50, span_seconds=600) as here:
        [part, *_] = list_orders(await here.read(here.window(300)))
        whole, _ = await here.connector.fetch_details(part)
        assert (whole.order_id, whole.modified_at) == (part.order_id, part.modified_at)
        assert b"customer" not in part.raw
        assert b'"customer"' in whole.raw


async def test_an_order_without_a_time_is_as_old_as_in_the_list() -> None:
    """By our own clock it would seem newer than any change to come, which would never be asked for."""
    record = TAOBAO.model_copy(update={"rows": TAOBAO.rows.model_copy(update={"modified": "$.missing"})})
    async with running_connector(record, kind="taobao", orders=50, span_seconds=600) as here:
        [part, *_] = list_orders(await here.read(here.window(300)))
        whole, _ = await here.connector.fetch_details(part)
        assert whole.modified_at == part.modified_at


async def test_an_order_that_is_gone_cannot_be_made_whole() -> None:
    """The fault has the platform's words."""
    async with running_connector(kind="taobao", orders=50, span_seconds=600) as here:
        [part, *_] = list_orders(await here.read(here.window(300)))
        here.platform.market.shown.version[int(part.order_id) - 2**53 - 1] = 0
        with pytest.raises(PlatformRefused, match="trade-not-exist"):
            await here.connector.fetch_details(part)


async def test_a_filter_that_is_not_heeded_is_noticed() -> None:
    """The orders are kept; those that were not requested are counted."""
    async with running_connector(orders=500, span_seconds=3_600, faults=PlatformFaults(ignore_filter=True)) as here:
        window = here.window(600)
        pages = await here.read(window)
        assert sum(page.outside for page in pages) == 500 - len(here.truth(window))
        assert len(list_orders(pages)) == 500


def _with(**rows: str) -> Capability:
    return PLAIN.model_copy(update={"rows": PLAIN.rows.model_copy(update=rows)})


async def test_an_order_without_a_time_is_kept_as_the_oldest() -> None:
    """So that any copy that has one replaces it."""
    async with running_connector(_with(modified="$.missing"), orders=10, span_seconds=600) as here:
        window = here.window(400, until_seconds_ago=100)
        [page] = [each for each in await here.read(window) if each.orders]
        assert page.undated == len(page.orders) > 0
        assert {order.modified_at for order in page.orders} == {window.start}


async def test_permits_are_taken_for_each_request() -> None:
    """In small batches, under the platform's own number."""
    async with running_connector(orders=5_000, span_seconds=3_600) as here:
        await here.read(here.window(3_000))
        taken = Counter[str]()
        for rate in here.limiter.taken:
            taken[rate.bucket] += rate.amount
        assert set(taken) == {"platform:7", "platform:7:day"}
        assert taken["platform:7"] == taken["platform:7:day"] >= here.platform.stats()["requests"] > 1


@pytest.mark.parametrize("counted", [True, False])
async def test_a_clock_that_the_rate_does_not_count_takes_no_permit(counted: bool) -> None:
    """It is read although the rate is used up; otherwise nothing would be claimed meanwhile."""
    record = PLAIN.model_copy(update={"clock": PLAIN.clock.model_copy(update={"counted": counted})})
    async with running_connector(record, orders=0) as here:
        await here.connector.fetch_platform_time()
        assert bool(here.limiter.taken) is counted


async def test_what_is_known_of_one_address_is_not_believed_of_another() -> None:
    """The platform has moved to one that lists fewer orders on a page than are requested: none is passed over."""
    async with (
        running_platforms() as sims,
        GuardedClient(EgressGuardSettings(allow=["127.0.0.0/8"])) as http,
    ):
        every = PlatformConnectorFactory(http, OpenLimiter())
        scenario = {"orders": 900, "span_seconds": 600, "kind": "plain"}
        sims.add("before", PlatformScenario.model_validate(scenario))
        after = sims.add("after", PlatformScenario.model_validate({**scenario, "faults": {"page_cap": 40}}))
        window = TimeWindow(start=after.scenario.start, end=after.scenario.start + timedelta(days=1))

        async def read_credentials(renew: bool) -> Credentials:
            return Credentials.model_validate(after.credentials)

        async def count_orders(number: str) -> int:
            connector = every.build_connector(
                PLAIN.model_copy(update=SMALL_PAGES),
                Account("7", "shop", sims.url(number)),
                read_credentials,
                rate=QUICK,
            )
            return len(newest_copies([page async for page in connector.iterate_pages(window, 900)]))

        assert await count_orders("before") == 900
        assert await count_orders("after") == 900


async def test_calls_for_one_order_are_counted_by_themselves_at_the_same_rate() -> None:
    """Their rate may be that of the list; it is another one all the same."""
    rate = PLAIN.rate
    record = PLAIN.model_copy(update={"detail": WHOLE.model_copy(update={"rate": rate})})
    async with running_connector(record, orders=50, span_seconds=600) as here:
        [part, *_] = list_orders(await here.read(here.window(300)))
        here.limiter.taken.clear()
        connector = PlatformConnectorFactory(here.connector._client._http, here.limiter).build_connector(
            record, Account("7", "shop-1", here.address), here.connector._client._credentials._read_credentials
        )
        await connector.fetch_details(part)
        assert "platform:7:details" in {each.bucket for each in here.limiter.taken}


@pytest.mark.parametrize(("ahead_once", "believed"), [(True, 0.0), (False, 7_200.0)])
async def test_a_clock_that_jumps_ahead_is_believed_at_the_second_reading(
    ahead_once: bool, believed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wrong answer, as of a gateway, has no time claimed that is still to come."""
    async with running_connector(orders=0, skew_seconds=0) as here:
        read_times, connector = list[datetime](), here.connector
        read = connector.fetch_platform_time

        async def fetch_platform_time() -> datetime:
            read_times.append(await read())
            return read_times[-1] + (timedelta(hours=2) if len(read_times) == 1 or not ahead_once else timedelta())

        monkeypatch.setattr(connector, "fetch_platform_time", fetch_platform_time)
        now = await slice_attempts.fetch_platform_time(connector, 0.0)
        assert (now - read_times[-1]).total_seconds() == pytest.approx(believed, abs=30)
        assert len(read_times) == 2
        assert await slice_attempts.fetch_platform_time(connector, None)
        assert await slice_attempts.fetch_platform_time(connector, 7_200.0)
        assert len(read_times) == 4
