"""How deliveries of webhooks are started and found from outside."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import Priority, TypedSearchAttributes

from domain.webhooks import names
from domain.webhooks.deliveries import DeliveryState, WebhookOrder
from infra import starts
from infra.starts import SameId, Start


async def redeliver(engine: Client, order: WebhookOrder, task_timeout: timedelta) -> None:
    """Wake the delivery that waits for its next attempt, or start it anew."""
    delivery = Start(
        workflow=names.DELIVERY_WORKFLOW,
        order=order,
        id=names.workflow_id(order.project_id, order.delivery_id),
        queue=names.QUEUE,
        same_id=SameId.JOINED_WHILE_RUNNING,
        attributes=search_attributes(order),
        summary=f"tell {order.event.type} again",
        signal=names.REDELIVER,
        task_timeout=task_timeout,
        priority=priority(order),
    )
    await starts.start(engine, delivery)


def search_attributes(order: WebhookOrder) -> TypedSearchAttributes:
    """What a delivery is found by in the engine."""
    return starts.attributes(names.SYSTEM, project_id=order.project_id, state=DeliveryState.PENDING)


def priority(order: WebhookOrder) -> Priority:
    """One project's dead receivers must not hold up another's deliveries."""
    return Priority(fairness_key=order.project_id)
