"""What the administrator of a platform was sent: listed under the platform, and sent again on request."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import NUMBER, Orders, running_orders, since
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
OTHER = "quiet-shop"


async def list_deliveries(orders: Orders, platform: str = NUMBER) -> list[dict[str, Any]]:
    """What the API lists of a platform."""
    reply = await orders.ask("GET", f"/v1/platforms/{platform}/deliveries")
    assert reply.status == 200, reply.body
    items: list[dict[str, Any]] = reply.body["items"]
    return items


@pytest.mark.long
async def test_what_an_administrator_was_sent_is_listed_and_sent_again(settings: Settings) -> None:
    """Under the platform that it is about, with its attempts; another platform has none of it."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=10, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1)))
        for name in (NUMBER, OTHER):
            await orders.set_up(name, notify_url=f"{orders.platforms.base}/nobody")
        await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), interval=1_500, retries=0)
        await orders.fetch()

        async def require_attempts(times: int, delivery_id: str = "") -> dict[str, Any]:
            failed = [each for each in await list_deliveries(orders) if each["type"] == "orders.slice_failed"]
            # Another slice has failed as well: its delivery may come first later.
            chosen = [each for each in failed if delivery_id in ("", each["delivery_id"])]
            assert chosen
            assert chosen[0]["attempts"] >= times
            return chosen[0]

        delivery = await eventually(lambda: require_attempts(1))
        path = f"deliveries/{delivery['delivery_id']}/redeliver"
        again = await orders.ask("POST", f"/v1/platforms/{NUMBER}/{path}")
        repeated = await eventually(lambda: require_attempts(2, delivery["delivery_id"]))
        elsewhere = await orders.ask("POST", f"/v1/platforms/{OTHER}/{path}")
        unknown = await orders.ask("GET", "/v1/platforms/nobodys-shop/deliveries")

        assert delivery["last_attempts"][0]["status"] == 404
        assert (again.status, again.body["state"]) == (202, "pending")
        assert repeated["delivery_id"] == delivery["delivery_id"]
        assert await list_deliveries(orders, OTHER) == []
        assert (elsewhere.status, unknown.status) == (404, 404)
