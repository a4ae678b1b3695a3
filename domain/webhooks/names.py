"""Names of webhooks: the task queue, the workflow and its ids."""

from __future__ import annotations

DELIVERY_WORKFLOW = "WebhookDelivery"

QUEUE = "webhooks"
QUEUES = (QUEUE,)
PURGE = "webhook_purge"
HOUSEKEEPING = (PURGE,)
SYSTEM = "webhooks"
REDELIVER = "redeliver"


def build_workflow_id(project_id: str, delivery_id: str) -> str:
    """Return the id of a delivery's workflow; the project in it keeps other projects from using the same id."""
    return f"webhook:{project_id}:{delivery_id}"
