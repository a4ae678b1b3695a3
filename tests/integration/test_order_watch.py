"""The watch as it runs in everyday life: by its schedule, with its own patience."""

from __future__ import annotations

import time

import pytest

from domain.orders import names
from infra.settings import Settings
from sims.platforms.scenario import Scenario
from tests.support.orders import running_orders
from tests.support.waiting import eventually
from workflows.orders import handle

pytestmark = pytest.mark.stack

WITHIN_SECONDS = 60.0


async def test_a_platform_that_nobody_serves_is_told_within_a_minute(settings: Settings) -> None:
    """From the moment at which it is set up until the administrator is being told."""
    async with running_orders(settings, queues=[names.QUEUE, "webhooks"]) as orders:
        await handle.ensure_watch(orders.engine)
        orders.play(Scenario(orders=0))
        began = time.monotonic()
        await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")

        async def is_told() -> bool:
            return "orders.platform_unserved" in await orders.events()

        await eventually(is_told, WITHIN_SECONDS)
        assert time.monotonic() - began < WITHIN_SECONDS
        assert (await orders.status())["unserved_since"] is not None
