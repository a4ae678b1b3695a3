"""The stand-in platforms: the same by the same seed, true in their ledger, wrong only where they were asked to be."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sims.platforms.clock import MICRO
from sims.platforms.dialects.base import Reply, StandInRequest
from sims.platforms.gate import Throttle
from sims.platforms.market import Market
from sims.platforms.platform import Platform
from sims.platforms.scenario import Changes, Limits, PlatformFaults, PlatformScenario
from sims.platforms.server import running_platforms

ROOT = Path(__file__).parents[2]
START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * MICRO
ALL = {"from": "2026-01-01T00:00:00Z", "to": "2027-01-01T00:00:00Z", "page_size": "1000"}


def ask(platform: Platform, path: str = "/orders", **query: str) -> Any:
    """The JSON of one answer."""
    reply = answer(platform, path, **query)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def answer(platform: Platform, path: str = "/orders", **query: str) -> Reply:
    """One answer."""
    headers = {"Authorization": f"Bearer {platform.tokens.good}"}
    return platform.answer(StandInRequest(path, {**ALL, **query}, headers, ""))[0]


def ids(told: Any) -> list[int]:
    """The ids on a page."""
    return [row["id"] for row in told["orders"]]


def test_the_same_seed_makes_the_same_platform() -> None:
    """Its orders, its changes, its faults; another seed makes another."""

    def life(seed: int) -> tuple[Any, list[int]]:
        changes = Changes(per_page=0.5, late_share=0.3)
        platform = Platform(PlatformScenario(seed=seed, orders=500, changes=changes, faults=PlatformFaults(errors=0.3)))
        statuses = [answer(platform, page=str(page % 5 + 1), page_size="100").status for page in range(50)]
        return platform.ledger(), statuses

    assert life(1) == life(1)
    assert life(1) != life(2)


@given(
    st.lists(
        st.tuples(st.sampled_from(["create", "modify", "pass"]), st.integers(0, 99), st.integers(0, 30)), max_size=60
    )
)
def test_queries_show_the_truth_once_it_is_visible(deeds: list[tuple[str, int, int]]) -> None:
    """Whatever was created and modified, and however late it shows: in the end windows list the ledger."""
    market = Market(PlatformScenario(orders=20, span_seconds=60), MICRO)
    for deed, number, seconds in deeds:
        match deed:
            case "create":
                market.create(market.now_us, seconds * MICRO)
            case "modify":
                market.modify(number % len(market.created), market.now_us, seconds * MICRO)
            case _:
                market.clock.advance(seconds)
                market.tick()
    market.freeze()
    everything = market.ascending(market.everything(), 0, 10**6)
    assert sorted(everything) == list(range(len(market.created)))
    assert [market.truth.modified[number] for number in everything] == sorted(market.truth.modified)
    assert market.shown == market.truth


def test_an_order_shows_late_and_not_before() -> None:
    """It was created now, and for its lateness no query lists it; then it is listed with its own time."""
    platform = Platform(PlatformScenario(orders=0, span_seconds=60))
    platform.market.create(platform.market.now_us, 30 * MICRO)
    assert ids(ask(platform)) == []
    platform.market.clock.advance(29)
    assert ids(ask(platform)) == []
    platform.market.clock.advance(1)
    [row] = ask(platform)["orders"]
    assert row["updated_at"] == "2026-01-01T00:01:00Z"


def test_a_change_that_shows_late_leaves_the_old_order_in_its_place() -> None:
    """As an index does that lags behind."""
    platform = Platform(PlatformScenario(orders=1, span_seconds=60))
    before = ask(platform)["orders"]
    platform.market.clock.advance(10)
    platform.market.modify(0, platform.market.now_us, 5 * MICRO)
    assert ask(platform)["orders"] == before
    platform.market.clock.advance(5)
    [after] = ask(platform)["orders"]
    assert (after["version"], after["updated_at"]) == (2, "2026-01-01T00:01:10Z")


def test_crowds_share_their_second() -> None:
    """Full ten minutes hold what was asked for."""
    platform = Platform(PlatformScenario(orders=1_000, span_seconds=3_600, crowd_share=0.5))
    full = [at for at in platform.ledger()["modified_us"] if (at - START_US) % (600 * MICRO) == 0]
    assert 400 < len(full) < 600


def test_orders_change_while_pages_are_read() -> None:
    """About as often as was asked for, and inside the window that is read."""
    platform = Platform(
        PlatformScenario(orders=2_000, changes=Changes(per_page=0.5, created_share=0, in_window_share=1))
    )
    window = {"from": "2026-01-01T06:00:00Z", "to": "2026-01-01T12:00:00Z"}
    totals = [ask(platform, **window)["total"] for _ in range(100)]
    assert 60 < platform.market.changes < 160
    assert totals[0] - totals[-1] == pytest.approx(platform.market.changes, abs=2)


def test_orders_change_as_time_goes_on() -> None:
    """Two in a second make about 120 in a minute, new ones among them."""
    platform = Platform(PlatformScenario(orders=100, changes=Changes(per_second=2, created_share=0.5)))
    platform.market.clock.advance(60)
    told = ask(platform)
    assert 80 < platform.market.changes < 160
    assert told["total"] == platform.stats()["orders"] > 120


def test_a_frozen_platform_changes_no_more() -> None:
    """And shows all that it owed."""
    changes = Changes(per_second=5, per_page=0.9, late_share=1, late_seconds=1_000)
    platform = Platform(PlatformScenario(orders=100, changes=changes))
    platform.market.clock.advance(60)
    platform.market.freeze()
    platform.market.clock.advance(600)
    before = platform.ledger()
    assert ask(platform) == ask(platform)
    after = platform.ledger()
    assert (after["versions"], after["shown_versions"]) == (before["versions"], before["versions"])


@pytest.mark.parametrize(
    ("limits", "passed"), [(Limits(per_second=10, burst=5), 5), (Limits(per_day=3), 3), (Limits(), 9)]
)
def test_a_throttle_lets_through_what_it_may(limits: Limits, passed: int) -> None:
    """A burst at once, a quota in a day, or everything."""
    throttle = Throttle(limits)
    waits = [throttle.wait_seconds() for _ in range(9)]
    assert sum(not wait for wait in waits) == passed
    assert throttle.refused == 9 - passed


def test_rows_behind_the_cap_are_not_told() -> None:
    """Without a word, while the total counts them."""
    platform = Platform(PlatformScenario(orders=3_000, rows_max=1_500))
    pages = [ask(platform, page=str(page)) for page in (1, 2, 3)]
    assert [len(ids(page)) for page in pages] == [1_000, 500, 0]
    assert {page["total"] for page in pages} == {3_000}


def test_faults_strike_as_many_as_they_may() -> None:
    """And then none."""
    platform = Platform(PlatformScenario(orders=10, faults=PlatformFaults(errors=1, only_first=3)))
    assert [answer(platform).status for _ in range(5)] == [500, 500, 500, 200, 200]


def test_a_token_is_good_for_its_requests() -> None:
    """Then it has expired, and the next one is good."""
    platform = Platform(PlatformScenario(orders=10, faults=PlatformFaults(token_requests=2)))
    old = platform.tokens.good
    assert [answer(platform).status for _ in range(3)] == [200, 200, 401]
    assert platform.tokens.good != old
    assert answer(platform).status == 200


async def test_it_runs_as_a_process_and_is_steered_over_http() -> None:
    """A platform is made, its clock advances, orders are made and changed, and the ledger shows it all."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sims.platforms", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        base = json.loads(await process.stdout.readline())["url"]
        async with aiohttp.ClientSession(base, raise_for_status=True) as session:
            scenario = PlatformScenario(orders=5, span_seconds=60)
            made = await (await session.put("/_sim/7", data=scenario.model_dump_json())).json()
            assert made["url"] == f"{base}/p/7"
            await session.post("/_sim/7/advance?seconds=100")
            await session.post("/_sim/7/create?count=2")
            await session.post("/_sim/7/modify?number=0&late_seconds=50")
            ledger = await (await session.get("/_sim/7/ledger")).json()
            now_us = START_US + 160 * MICRO
            assert ledger["now_us"] == now_us
            assert ledger["modified_us"][5:] == [now_us, now_us]
            assert (ledger["versions"][0], ledger["shown_versions"][0]) == (2, 1)
            await session.post("/_sim/7/freeze")
            ledger = await (await session.get("/_sim/7/ledger")).json()
            assert ledger["versions"] == ledger["shown_versions"]
    finally:
        process.terminate()
        await process.wait()


async def test_a_wrong_scenario_is_refused_and_an_unknown_platform_not_there() -> None:
    """With what was wrong."""
    async with running_platforms() as platforms, aiohttp.ClientSession(platforms.base) as session:
        wrong = await session.put("/_sim/7", json={"colour": "blue"})
        said = (await wrong.json())["error"]
        assert (wrong.status, said.startswith("colour: Extra inputs are not permitted")) == (400, True), said
        missing = await session.get("/p/7/orders")
        assert (missing.status, await missing.text()) == (404, "There is no platform 7. Make it with PUT /_sim/7.")


async def test_limits_and_faults_change_while_orders_stay() -> None:
    """A platform recovers, or has a bad day."""
    async with running_platforms() as platforms, aiohttp.ClientSession(platforms.base) as session:
        platform = platforms.add("7", PlatformScenario(orders=30))
        before = platform.ledger()["modified_us"]
        bad = PlatformScenario(orders=30, faults=PlatformFaults(errors=1))
        await session.patch("/_sim/7", data=bad.model_dump_json())
        headers = {"Authorization": "Bearer token-of-this-shop-1"}
        assert (await session.get("/p/7/orders", headers=headers)).status == 500
        assert platform.ledger()["modified_us"] == before


async def test_platforms_that_were_set_outlive_a_restart(tmp_path: Path) -> None:
    """With their kind, orders and faults; a mended one stays mended."""
    file = tmp_path / "stand-ins" / "platforms.json"
    async with running_platforms(file=file) as platforms, aiohttp.ClientSession(platforms.base) as session:
        for number in ("good", "bad"):
            sent = {"kind": "shopify", "orders": 30, "seed": 7, "faults": {"total_off": 2}}
            await session.put(f"/_sim/{number}", json=sent)
        await session.patch("/_sim/good", json={"faults": {}})
        before = {number: each.ledger() for number, each in platforms.by_number.items()}

    async with running_platforms(file=file) as platforms:
        assert {number: each.ledger() for number, each in platforms.by_number.items()} == before
        scenarios = {number: each.scenario for number, each in platforms.by_number.items()}
    assert {each.kind for each in scenarios.values()} == {"shopify"}
    assert {number: each.faults.total_off for number, each in scenarios.items()} == {"good": 0, "bad": 2}


async def test_scenarios_of_another_version_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stand-ins start without them, and the log says so."""
    file = tmp_path / "platforms.json"
    file.write_text('{"shop": {"colour": "blue"}}')
    async with running_platforms(file=file) as platforms:
        assert platforms.by_number == {}
    assert f"{file} is ignored" in capsys.readouterr().err
