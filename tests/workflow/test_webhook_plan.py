"""The plan of a delivery: the whole ladder with time skipped, and announcing from a plan that ends before it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from domain import webhooks
from domain.webhooks import DeliveryState, WebhookDeliveryInput, WebhookEventSubject
from infra.settings import Settings
from tests.support.waiting import eventually
from tests.support.webhooks import Handle, make_order, running_webhooks, start
from workflows.webhooks import delivery

pytestmark = pytest.mark.stack

ANNOUNCERS = "announcers"


@workflow.defn(sandboxed=False)
class Announcer:
    """A plan that announces, twice, and ends; or is cancelled, and announces that."""

    @workflow.run
    async def run(self, order: WebhookDeliveryInput) -> str:
        """Announce when it is over, one way or the other."""
        try:
            if order.owner.id == "to be cancelled":
                await asyncio.sleep(3600)
        finally:
            await delivery.start_delivery(order)
            await delivery.start_delivery(order)
        return delivery.create_delivery_id()


async def test_the_ladder_in_its_full_length(settings: Settings) -> None:
    """Ten attempts over 75 hours, each pause as the standard says and at most a tenth longer; then it has failed."""
    async with running_webhooks(settings) as deliveries:
        skipping = TimeSkipper(deliveries.services.engine).client
        order = make_order(deliveries.services.sealer, deliveries.project_id, deliveries.receiver.url(answers="500"))
        handle = await start(skipping, order)
        result = await handle.result()
        shown = await deliveries.wait_for_state(order, "failed", 10)
        gaps = await _gaps(handle)

        assert len({message.headers["webhook-id"] for message in deliveries.receiver.list_received()}) == 1
        assert len(deliveries.receiver.list_received()) == 10
    assert (result.state, result.number) == (DeliveryState.FAILED, 10)
    assert len(shown["last_attempts"]) == 10
    for gap, pause in zip(gaps, settings.webhooks.retry_pauses_seconds, strict=True):
        assert pause <= gap <= pause * 1.1 + 60


async def test_a_delivery_outlives_the_plan_that_announced_it(settings: Settings) -> None:
    """The parent ends at once; what it announced is delivered, once, however often it was announced."""
    async with (
        running_webhooks(settings, retry_pauses_seconds=[3600.0]) as deliveries,
        _announcers(deliveries.services.engine),
    ):
        engine = deliveries.services.engine
        order = make_order(
            deliveries.services.sealer, deliveries.project_id, deliveries.receiver.url(answers="500,200")
        )
        made = await engine.execute_workflow(Announcer.run, order, id="announcer", task_queue=ANNOUNCERS)
        await deliveries.wait_for_state(order, "pending", 1)
        await deliveries.redeliver(order)
        await deliveries.wait_for_state(order, "succeeded", 2)

    assert WebhookDeliveryInput.model_validate(order.model_dump() | {"delivery_id": made})


async def test_a_cancelled_plan_still_announces(settings: Settings) -> None:
    """The cancellation reaches the plan, not what it announces about it."""
    async with running_webhooks(settings) as deliveries, _announcers(deliveries.services.engine):
        engine = deliveries.services.engine
        order = make_order(deliveries.services.sealer, deliveries.project_id, deliveries.receiver.url())
        order = order.model_copy(update={"owner": WebhookEventSubject(system="downloads", id="to be cancelled")})
        parent = await engine.start_workflow(Announcer.run, order, id="announcer", task_queue=ANNOUNCERS)
        await parent.cancel()
        child = engine.get_workflow_handle(webhooks.build_delivery_workflow_id(order.project_id, order.delivery_id))

        await eventually(lambda: len(deliveries.receiver.list_received()) == 1)
        await eventually(lambda: _is_closed(child))
        description = await parent.describe()
    assert description.status is WorkflowExecutionStatus.CANCELED


def _announcers(engine: Client) -> Worker:
    return Worker(engine, task_queue=ANNOUNCERS, workflows=[Announcer])


async def _is_closed(handle: Handle) -> bool:
    return (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def _gaps(handle: Handle) -> list[float]:
    """Seconds of the workflow's own time between one attempt's end and the next one's beginning."""
    kinds = (EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    steps = [event async for event in handle.fetch_history_events() if event.event_type in kinds]
    moments = [event.event_time.ToDatetime() for event in steps]
    assert len(moments) == 20
    return [(later - earlier) / timedelta(seconds=1) for earlier, later in pairwise(moments)][1::2]
