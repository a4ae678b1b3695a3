"""Configuration of platforms through the public API: checked, versioned, and inherited value by value."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from domain.orders.config import PlatformOptions
from domain.orders.windows import Watermarks
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformScenario
from stores.orders import platforms
from tests.support.orders import NUMBER, running_orders, set_up_platform
from workflows.orders import handle

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
CONFIG = f"/v1/platforms/{NUMBER}/config"
TURN_SECONDS = 0.3
"""Long enough for a request to come to where it waits."""
NARROW = PLAIN.model_copy(
    update={"query": PLAIN.query.model_copy(update={"window_max_seconds": 1_800.0, "newest_seconds": 60.0})}
)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"interval": 0}, "1"),
        ({"threads": 0}, "1"),
        ({"starttime": "2199-01-01T00:00:00Z"}, "future"),
        ({"starttime": "soon"}, "last 3 months"),
        ({"interval": 3_600}, "at most 1800 s"),
        ({"settle_lag": 10}, "at least 60 s old"),
        ({"intervall": 600}, "intervall"),
    ],
)
async def test_a_wrong_configuration_is_refused(settings: Settings, options: dict[str, Any], said: str) -> None:
    """With a sentence that says what is allowed, and nothing of it in force."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up(capability=NARROW)
        before = await orders.ask("GET", "/v1/platforms/shop-1/config")

        reply = await orders.ask("PUT", "/v1/platforms/shop-1/config", json=options)

        after = await orders.ask("GET", "/v1/platforms/shop-1/config")
    assert 400 <= reply.status < 500
    assert said in str(reply.body)
    assert after.body == before.body


async def test_an_unknown_platform_is_refused(settings: Settings) -> None:
    """Its number, its kind, a kind that is not its capability's, and an address that paths cannot be put behind."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        body = {"project_id": orders.project_id, "shop": "s", "base_url": orders.platforms.url("shop-1")}
        capability = PLAIN.model_dump(mode="json")
        replies = [
            await orders.ask("GET", "/v1/platforms/nobody"),
            await orders.ask("PUT", "/v1/platforms/nobody/config", json={}),
            await orders.ask("PUT", "/v1/platforms/shop-1", json={**body, "kind": "ebay"}),
            await orders.ask("PUT", "/v1/platforms/shop-1", json={**body, "kind": "other", "capability": capability}),
            await orders.ask("PUT", "/v1/platforms/default", json={**body, "kind": "taobao"}),
            *[
                await orders.ask("PUT", "/v1/platforms/shop-1", json={**body, "kind": "taobao", "base_url": address})
                for address in (f"{body['base_url']}?shop=1", f"{body['base_url']}/#")
            ],
        ]
    assert [reply.status for reply in replies[:2]] == [404, 404]
    assert [reply.code for reply in replies[2:]] == ["platform_invalid"] * 5
    assert "taobao" in replies[2].body["detail"]


async def test_a_platform_is_set_up_with_its_schedule_or_not_at_all(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy engine is 503 with its name; no platform counts against the quota, and the repetition sets it up."""

    async def fail_query(_client: object) -> None:
        message = "Unable to query workflow due to Workflow Task in failed state."
        raise RPCError(message, RPCStatusCode.FAILED_PRECONDITION, b"")

    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        body = {
            "project_id": orders.project_id,
            "kind": "plain",
            "shop": "s",
            "base_url": orders.platforms.url("shop-1"),
            "capability": NARROW.model_dump(mode="json"),
        }
        with monkeypatch.context() as patched:
            patched.setattr(handle, "set_watch_schedule_intervals_if_none", fail_query)
            failed = await orders.ask("PUT", "/v1/platforms/shop-1", json=body)
        missing = await orders.ask("GET", "/v1/platforms/shop-1")
        again = await orders.ask("PUT", "/v1/platforms/shop-1", json={**body, "is_paused": True})
    assert (failed.status, failed.code) == (503, "unavailable")
    assert "Temporal" in failed.body["detail"]
    assert failed.headers["Retry-After"]
    assert (missing.status, again.status) == (404, 200), again.body


async def test_each_value_tells_where_it_comes_from(settings: Settings) -> None:
    """Two levels, each change a version; a default that one platform could not bear is refused for all."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up(capability=NARROW)
        first = await orders.ask("PUT", "/v1/platforms/default/config", json={"threads": 7, "interval": 900})
        second = await orders.ask("PUT", "/v1/platforms/shop-1/config", json={"threads": 2})
        again = await orders.ask("PUT", "/v1/platforms/shop-1/config", json={"threads": 2})
        refused = await orders.ask("PUT", "/v1/platforms/default/config", json={"interval": 7_200})

    values = second.body["effective"]
    assert {name: (values[name]["value"], values[name]["origin"]) for name in ("threads", "interval", "retries")} == {
        "threads": (2, "platform"),
        "interval": (900, "default"),
        "retries": (3, "built_in"),
    }
    assert first.body["version"] < second.body["version"] == again.body["version"]
    assert refused.code == "config_invalid"
    assert "shop-1" in refused.body["detail"]


async def test_single_values_are_changed_and_the_beginning_is_kept(settings: Settings) -> None:
    """PATCH leaves what is not sent, null takes back; a begun platform takes no other starttime."""
    async with running_orders(settings) as orders:
        starttime = await set_up_platform(orders, PlatformScenario(orders=9, span_seconds=SPAN_SECONDS), retries=5)
        path = "/v1/platforms/shop-1/config"
        changed = await orders.ask("PATCH", path, json={"threads": 3, "retries": None})
        nobody = await orders.ask("PATCH", path, json={"credentials": "no-such-file"})
        before = await orders.ask("PATCH", path, json={"starttime": "last 6 months"})
        await orders.ask("PATCH", path, json={"starttime": starttime})
        await orders.fetch()
        same = await orders.ask("PATCH", path, json={"starttime": starttime, "threads": 2})
        kept = [
            await orders.ask(method, path, json={"starttime": other, "credentials": "shop"})
            for method in ("PUT", "PATCH")
            for other in ("last 6 months", "2025-12-01T00:00:00Z")
        ]
        shown = await orders.ask("GET", path)

    own = changed.body["own"]
    assert (own["threads"], own["retries"], own["interval"]) == (3, None, 1_500)
    assert changed.body["effective"]["retries"] == {"value": 3, "origin": "built_in"}
    assert (nobody.code, "no-such-file" in nobody.body["detail"]) == ("config_invalid", True)
    assert (before.status, same.status) == (200, 200)
    assert [each.code for each in kept] == ["starttime_fixed"] * 4
    assert (shown.body["own"]["starttime"], shown.body["own"]["threads"]) == (starttime, 2)


async def test_a_beginning_is_kept_whatever_it_comes_from(settings: Settings) -> None:
    """Leaving it out, null, or another default would change nothing that is fetched: each is refused, and says how."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=9, span_seconds=SPAN_SECONDS))
        own, shared = (f"/v1/platforms/{level}/config" for level in ("shop-1", "default"))
        assert (await orders.ask("PATCH", shared, json={"starttime": "last 2 hours"})).status == 200
        await orders.fetch()
        refused = [
            await orders.ask("PUT", own, json={"credentials": "shop"}),
            await orders.ask("PATCH", own, json={"starttime": None}),
        ]
        starts_at = (await orders.row()).starts_at
        assert starts_at is not None
        moved = {"starttime": (starts_at - timedelta(hours=1)).isoformat()}
        assert (await orders.ask("PATCH", shared, json=moved)).status == 200, "no platform begins by the default"

        await orders.ask("PATCH", shared, json={"starttime": starts_at.isoformat()})
        inherits = await orders.ask("PATCH", own, json={"starttime": None})
        refused.append(await orders.ask("PATCH", shared, json=moved))
        shown = await orders.ask("GET", own)

    assert [each.code for each in refused] == ["starttime_fixed"] * 3
    assert all(starts_at.isoformat() in each.body["detail"] for each in refused), refused[0].body
    assert "PATCH /v1/platforms/shop-1/config (of a command: --since)" in refused[0].body["detail"]
    assert inherits.status == 200
    assert shown.body["effective"]["starttime"] == {"value": starts_at.isoformat(), "origin": "default"}


async def test_a_beginning_that_is_being_fixed_is_kept(settings: Settings) -> None:
    """The first claim and a change at the same time: the change is checked against what the claim has fixed."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=0))
        async with orders.services.database.session() as session:
            row = await platforms.require_platform(session, NUMBER, lock=True)
            for mark in Watermarks.model_fields:
                setattr(row, mark, datetime(2026, 3, 1, tzinfo=UTC))
            session.add(row)
            await session.flush()
            changing = asyncio.create_task(orders.ask("PATCH", CONFIG, json={"starttime": "last 3 days"}))
            await asyncio.sleep(TURN_SECONDS)
        reply = await changing
        assert (reply.status, reply.code) == (409, "starttime_fixed"), reply.body


async def test_a_record_and_options_that_cannot_work_together_are_not_both_taken(settings: Settings) -> None:
    """Each may be valid by what the other was before."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=0))
        narrow = PLAIN.model_copy(update={"query": PLAIN.query.model_copy(update={"window_max_seconds": 1_800.0})})
        body = {
            "project_id": orders.project_id,
            "kind": "plain",
            "shop": "shop",
            "base_url": orders.platforms.url(NUMBER),
            "capability": narrow.model_dump(mode="json"),
        }
        async with orders.services.database.session() as session:
            await platforms.lock_options_until_commit(session)
            await platforms.insert_options_version(session, NUMBER, PlatformOptions(interval=3_600))
            setting = asyncio.create_task(orders.ask("PUT", f"/v1/platforms/{NUMBER}", json=body))
            await asyncio.sleep(TURN_SECONDS)
        reply = await setting
        assert (reply.status, reply.code) == (422, "config_invalid"), reply.body
