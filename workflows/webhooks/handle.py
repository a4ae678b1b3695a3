"""How deliveries of webhooks are started and found from outside."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import (
    Priority,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from domain.webhooks import names
from domain.webhooks.deliveries import DeliveryState, WebhookOrder
from infra import temporal


async def redeliver(engine: Client, order: WebhookOrder, task_timeout: timedelta) -> None:
    """Wake the delivery that waits for its next attempt, or start it anew."""
    await engine.start_workflow(
        names.DELIVERY_WORKFLOW,
        order,
        id=names.workflow_id(order.project_id, order.delivery_id),
        task_queue=names.QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        task_timeout=task_timeout,
        start_signal=names.REDELIVER,
        search_attributes=search_attributes(order),
        static_summary=f"tell {order.event.type} again",
        priority=priority(order),
    )


def search_attributes(order: WebhookOrder) -> TypedSearchAttributes:
    """What a delivery is found by in the engine."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(temporal.ROOM, names.SYSTEM),
            SearchAttributePair(temporal.PROJECT, order.project_id),
            SearchAttributePair(temporal.STATE, DeliveryState.PENDING),
        ]
    )


def priority(order: WebhookOrder) -> Priority:
    """One project's dead receivers must not hold up another's deliveries."""
    return Priority(fairness_key=order.project_id)
