"""Names of webhooks: their task queue, workflows and their ids."""

from __future__ import annotations

DELIVERY_WORKFLOW = "WebhookDelivery"

QUEUE = "webhooks"
QUEUES = (QUEUE,)
PURGE = "webhook_purge"
HOUSEKEEPING = (PURGE,)
SYSTEM = "webhooks"
REDELIVER = "redeliver"


def workflow_id(project_id: str, delivery_id: str) -> str:
    """The id of a delivery's workflow; it names the project, so that no other project can name the workflow."""
    return f"webhook:{project_id}:{delivery_id}"
