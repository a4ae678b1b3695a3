"""The watch: which platforms no worker serves, by its schedule with its own patience, and on request with less."""

from __future__ import annotations

import time

import pytest
from temporalio.api.enums.v1 import EventType

from domain.orders import names
from domain.orders.activity_models import OrderWatchPatienceInput, ServedPlatformsResult
from infra.settings import Settings
from sims.platforms.scenario import PlatformScenario
from tests.support.orders import Orders, running_orders
from tests.support.pace import measure_pace
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.orders import handle
from workflows.orders.alarms import OrderWatchWorkflow

pytestmark = pytest.mark.stack

WITHIN_SECONDS = 90.0


@pytest.mark.long
async def test_a_platform_that_nobody_serves_is_told_within_a_minute_and_a_half(settings: Settings) -> None:
    """From the moment at which it is set up until the alarm to the administrator."""
    async with running_orders(settings, queues=[names.QUEUE, "webhooks"]) as orders:
        await handle.create_or_update_watch_schedule(orders.engine)
        pace, began = measure_pace(), time.monotonic()
        await _set_up(orders)

        async def is_told() -> bool:
            return "orders.platform_unserved" in await orders.events()

        await eventually(is_told)
        assert time.monotonic() - began < WITHIN_SECONDS * max(pace, measure_pace())
        assert (await orders.status())["unserved_since"] is not None


async def test_a_platform_that_nobody_serves_is_told_once(settings: Settings) -> None:
    """And forgotten when a worker comes; meanwhile nothing is fetched and nothing is lost."""
    async with running_orders(settings, queues=[names.QUEUE, "webhooks"]) as orders:
        await _set_up(orders)

        assert (await _run_watch(orders, "first", patience_seconds=1)).unserved == ["shop-1"]
        assert (await _run_watch(orders, "second", patience_seconds=1)).unserved == ["shop-1"]
        await eventually(orders.events)
        assert await orders.events() == ["orders.platform_unserved"]
        assert (await orders.status())["unserved_since"] is not None

        async with running_worker(orders.api_client.settings, [names.build_slice_queue_name("shop-1")]):
            assert (await _run_watch(orders, "third", patience_seconds=60)).served == ["shop-1"]
            assert (await orders.status())["unserved_since"] is None


@pytest.mark.long
async def test_one_question_without_an_answer_is_no_alarm(settings: Settings) -> None:
    """As on a busy machine: the second question in a row decides."""
    async with running_orders(settings, queues=[names.QUEUE, "webhooks"]) as orders:
        await _set_up(orders)
        order = OrderWatchPatienceInput(patience_seconds=10 * measure_pace())
        watch = await orders.engine.start_workflow(
            OrderWatchWorkflow.run, order, id="watch-busy", task_queue=names.QUEUE
        )

        async def is_missed() -> bool:
            return EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT in [
                event.event_type async for event in watch.fetch_history_events()
            ]

        await eventually(is_missed)
        async with running_worker(orders.api_client.settings, [names.build_slice_queue_name("shop-1")]):
            presence = await watch.result()
        seen, told = await orders.status(), await orders.events()

    assert (presence.served, presence.unserved) == (["shop-1"], [])
    assert (seen["unserved_since"], told) == (None, [])


async def _run_watch(orders: Orders, name: str, *, patience_seconds: float) -> ServedPlatformsResult:
    order = OrderWatchPatienceInput(patience_seconds=patience_seconds)
    return await orders.engine.execute_workflow(
        OrderWatchWorkflow.run, order, id=f"watch-{name}", task_queue=names.QUEUE
    )


async def _set_up(orders: Orders) -> None:
    orders.play(PlatformScenario(orders=0))
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
