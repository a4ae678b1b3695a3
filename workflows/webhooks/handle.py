"""Start deliveries of webhooks from outside workflows."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import Priority, TypedSearchAttributes

from domain import webhooks
from domain.webhooks import DeliveryState, WebhookDeliveryInput
from infra import starts
from infra.starts import SameIdPolicy, WorkflowStart


async def redeliver(engine: Client, delivery: WebhookDeliveryInput, task_timeout: timedelta) -> None:
    """Have a delivery attempted now, by its workflow if it runs, or else by a new run."""
    start = WorkflowStart(
        workflow=webhooks.DELIVERY_WORKFLOW,
        argument=delivery,
        id=webhooks.build_delivery_workflow_id(delivery.project_id, delivery.delivery_id),
        queue=webhooks.QUEUE,
        same_id=SameIdPolicy.JOIN_WHILE_RUNNING,
        attributes=build_search_attributes(delivery),
        summary=f"deliver {delivery.event.type} again",
        signal=webhooks.REDELIVER,
        task_timeout=task_timeout,
        priority=build_priority(delivery),
    )
    await starts.start_workflow(engine, start)


def build_search_attributes(delivery: WebhookDeliveryInput) -> TypedSearchAttributes:
    """Return the search attributes of a new delivery."""
    return starts.build_search_attributes(webhooks.SYSTEM, project_id=delivery.project_id, state=DeliveryState.PENDING)


def build_priority(delivery: WebhookDeliveryInput) -> Priority:
    """Return a priority that keeps one project's slow receivers from delaying another project's deliveries."""
    return Priority(fairness_key=delivery.project_id)
