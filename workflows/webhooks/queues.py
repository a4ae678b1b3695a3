"""The task queue of webhooks."""

from __future__ import annotations

from typing import Final

from activities.webhooks import WebhookActivities, WebhookAndSharedRecordHousekeeping
from domain import webhooks
from services.services import Services
from systems.protocol import SystemQueues, TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.webhooks.delivery import WebhookDelivery

WORKFLOWS: Final = (WebhookDelivery,)


def build_queues(services: Services) -> list[TaskQueue]:
    """Return the queue of deliveries."""
    activities = WebhookActivities(services.database, services.http, services.sealer, services.settings.webhooks)
    housekeeping = WebhookAndSharedRecordHousekeeping(services)
    return [
        TaskQueue(
            name=webhooks.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[
                activities.insert_delivery_or_make_pending,
                activities.attempt_delivery,
                housekeeping.purge_expired_deliveries,
                housekeeping.purge_audit_log_and_idempotency_keys,
            ],
            # Half of the guarded client's connections: receivers that hang must not keep sources from being asked.
            slots=32,
        )
    ]


QUEUES: Final = SystemQueues(names=webhooks.QUEUES, workflows=WORKFLOWS, build=build_queues)
