"""The client library sets a platform up, follows it until its orders are stored, and reads them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from haulage.orders import BackfillState, Orders, PlatformSetup, SliceChoice, SlicesActionResult, SliceState
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import CREDENTIALS, LAG_SECONDS, NUMBER, moment, since
from tests.support.orders import Orders as Installation

pytestmark = pytest.mark.stack


async def test_an_hour_of_orders_is_fetched(orders: Installation) -> None:
    """A slice fails while the platform refuses; redone, the platform is complete, and its orders are listed."""
    broken = PlatformFaults(errors=1)
    scenario = PlatformScenario(orders=40, span_seconds=3_600)
    platform = orders.play(scenario.model_copy(update={"faults": broken}))
    setup = PlatformSetup(
        project_id=orders.project_id,
        kind="plain",
        shop="shop",
        base_url=orders.platforms.url(NUMBER),
        capability=PLAIN.model_dump(mode="json"),
    )
    changed: SlicesActionResult | None = None
    async with Orders(orders.api_client.address, orders.api_client.settings.api.admin_key.get_secret_value()) as client:
        await client.set_up(NUMBER, setup)
        await client.pause(NUMBER, who="ann", reason="until it is configured")
        starttime = since(platform, seconds=3_600)
        config = await client.configure(
            NUMBER, credentials=CREDENTIALS, starttime=starttime, interval=3_500, retries=0, settle_lag=LAG_SECONDS
        )
        await client.resume(NUMBER, who="ann", reason="it is configured")
        await client.trigger(NUMBER)
        end = datetime.fromisoformat(starttime) + timedelta(seconds=3_500)
        async for seen in client.watch(NUMBER, until=end):
            # It is seen as failed until it is read again, which may be over before another redo.
            if seen.slices_failed and changed is None:
                platform.set(scenario)
                changed = await client.redo(NUMBER, SliceChoice(all=True))
        slices = [each async for each in client.list_slices(NUMBER, state=SliceState.DONE)]
        backfill = await client.start_backfill(NUMBER, slices[0].window.start, end)
        while not backfill.state.final:
            backfill = await client.get_backfill(NUMBER, backfill.backfill_id)
    async with Orders(orders.api_client.address, orders.key) as client:
        listed = [each async for each in client.list_orders(platform=NUMBER)]

    assert config.effective["retries"].value == 0
    assert changed is not None
    assert (changed.done, changed.unchanged) == ([each.slice for each in slices], [])
    assert (backfill.state, backfill.read) == (BackfillState.SUCCEEDED, 1)
    truth = platform.ledger()
    settled = {name for name, at in zip(truth["ids"], truth["modified_us"], strict=True) if moment(at) < end}
    assert {each.order_id for each in listed} == settled
    assert listed[0].order["version"] == listed[0].version
