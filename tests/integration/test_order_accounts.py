"""Accounts whose tokens renew themselves, whose orders are asked for one by one, and whose interface has versions."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from domain.orders.access import TokenRenewal
from domain.orders.capability import Capability
from domain.orders.declarations import ApiVersion
from infra.settings import Settings
from sims.platforms import login, texts
from sims.platforms.dialects.plain import ITEMS, PLAIN, VERSION_HEADER
from sims.platforms.scenario import Changes, PlatformFaults, PlatformScenario
from tests.support.orders import NUMBER, Orders, count_findings, running_orders, since
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
PATH = f"/v1/platforms/{NUMBER}"
SCENE: dict[str, Any] = {
    "orders": 120,
    "span_seconds": SPAN_SECONDS,
    "login": True,
    "odd_ids": True,
    "api_version": "v1",
    "version_in": "header",
}
RECORD = PLAIN.model_copy(
    update={
        "version": ApiVersion(value="v1", header=VERSION_HEADER),
        "detail": ITEMS,
        "access": PLAIN.access.model_copy(update={"renewal": TokenRenewal(url=login.PATH)}),
    }
)


async def set_up_platform(
    orders: Orders, scenario: PlatformScenario, record: Capability = RECORD, **options: Any
) -> None:
    """A platform with an hour of orders, not yet fetched; its administrator receives alarms."""
    platform = orders.play(scenario)
    await orders.set_up(capability=record, notify_url=f"{orders.platforms.base}/nobody")
    starttime = since(platform, seconds=SPAN_SECONDS)
    await orders.configure(**{"starttime": starttime, "interval": 600, "retries": 0, **options})


async def whole(orders: Orders) -> bool:
    """Whether a cycle leaves nothing open."""
    await orders.fetch()
    return await orders.is_complete()


@pytest.mark.parametrize(
    "faults",
    [
        PlatformFaults(token_requests=15),
        PlatformFaults(token_seconds=1, login_silent=True, slow_ms=20),
        PlatformFaults(login_slow_ms=1_000, login_errors=2),
    ],
    ids=["dies in the middle", "nobody tells its life", "a slow end point with bad moments"],
)
@pytest.mark.long
async def test_orders_come_whole_while_tokens_are_renewed(settings: Settings, faults: PlatformFaults) -> None:
    """By slices at the same time, with ids that hold slashes: no slice fails, and every order has all of its items."""
    scenario = PlatformScenario(**SCENE, faults=faults, changes=Changes(per_page=0.2))
    async with running_orders(settings) as orders:
        await set_up_platform(orders, scenario)
        platform = orders.platforms.by_number[NUMBER]
        await eventually(lambda: whole(orders))
        findings, status = count_findings(await orders.findings()), await orders.status()
        rows = await orders.read_orders()
        raws = {row.order_id: json.loads(await orders.raw(row.order_id)) for row in rows}

    assert findings == dict.fromkeys(findings, 0)
    assert (status["slices_failed"], status["credentials_failed_since"]) == (0, None)
    assert platform.login.answers[200] >= (2 if faults.token_requests else 1)
    assert platform.login.answers[500] == faults.login_errors
    names = {texts.odd_id(number): number for number in range(len(platform.market.created))}
    assert len(raws) > 60
    assert {name: raw["items"] for name, raw in raws.items()} == {
        name: json.loads(f"[{','.join(texts.items(names[name]))}]") for name in raws
    }


@pytest.mark.long
async def test_a_refused_refresh_token_is_told_once_and_healed(settings: Settings) -> None:
    """As credentials that a platform refuses: slices wait, none fails, and the end point is not hammered."""
    async with running_orders(settings, slices_ahead=4) as orders:
        await set_up_platform(
            orders, PlatformScenario(**SCENE, faults=PlatformFaults(login_refused=True)), interval=100, retryintv=1
        )
        platform = orders.platforms.by_number[NUMBER]
        with suppress(WorkflowFailureError):  # without a token the clock cannot be read, either
            await orders.fetch()
        told = await orders.status()
        before = platform.login.answers[400]
        with suppress(WorkflowFailureError):
            await orders.fetch()
        asked = platform.login.answers[400] - before

        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
        await eventually(lambda: whole(orders))
        healed, events = await orders.status(), await orders.events()

    assert told["credentials_fault"]["code"] == "platform_credentials"
    assert "invalid_grant" in told["credentials_fault"]["message"]
    assert platform.login.refresh_token not in json.dumps(told)
    assert told["credentials_fault"]["retryable"] is False
    assert 1 <= asked <= 10
    assert (healed["slices_failed"], healed["credentials_failed_since"]) == (0, None)
    assert events.count("orders.credentials_refused") == 1


@pytest.mark.long
async def test_the_version_is_changed_while_slices_wait(settings: Settings) -> None:
    """A platform that ends a version refuses all of it; the next one is a setting, in force at once."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(**SCENE), interval=1_500)
        await orders.fetch()
        platform, before = orders.platforms.by_number[NUMBER], await orders.row()
        platform.set(platform.scenario.model_copy(update={"api_version": "v2"}))
        platform.market.clock.advance(1_500)
        with suppress(WorkflowFailureError):  # its clock has that version, too
            await orders.fetch()
        told, shown = await orders.status(), await orders.ask("GET", f"{PATH}/config")
        odd = await orders.ask("PATCH", f"{PATH}/config", json={"api_version": "../v2"})
        changed = await orders.ask("PATCH", f"{PATH}/config", json={"api_version": "v2"})
        await eventually(lambda: whole(orders))
        after, findings = await orders.row(), count_findings(await orders.findings())

    assert "answers version v2" in told["clock_fault"]["message"]
    assert "`api_version`" in told["clock_fault"]["hint"]
    assert shown.body["effective"]["api_version"] == {"value": "v1", "origin": "kind"}
    assert odd.status == 422
    assert changed.body["effective"]["api_version"] == {"value": "v2", "origin": "platform"}
    assert before.complete_to
    assert after.complete_to
    assert after.complete_to > before.complete_to
    assert findings == dict.fromkeys(findings, 0)


async def test_what_cannot_be_asked_is_refused_at_the_door(settings: Settings) -> None:
    """A version where there is no place for one, and a token end point in a private network."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=0), PLAIN)
        versioned = await orders.ask("PATCH", f"{PATH}/config", json={"api_version": "v2"})
        access = PLAIN.access.model_copy(update={"renewal": TokenRenewal(url="http://10.0.0.1/token")})
        body = {
            "project_id": orders.project_id,
            "kind": "plain",
            "shop": "shop",
            "base_url": orders.platforms.url(NUMBER),
            "capability": PLAIN.model_copy(update={"access": access}).model_dump(mode="json"),
        }
        private = await orders.ask("PUT", PATH, json=body)

    assert (versioned.code, "names no place for a version" in versioned.body["detail"]) == ("config_invalid", True)
    assert (private.code, "HAULAGE_GUARD__ALLOW" in private.body["detail"]) == ("address_denied", True)
