"""The task queue of webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.webhooks import WebhookActivities, WebhookHousekeeping
from domain import webhooks
from services.services import Services
from systems.protocol import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.webhooks.delivery import WebhookDelivery

NAMES: Final = webhooks.QUEUES
WORKFLOWS: Final = (WebhookDelivery,)


def can_serve(queue: str) -> bool:
    """Return whether a worker can serve this queue."""
    return queue in NAMES


def build_queues(services: Services) -> list[TaskQueue]:
    """Return the queue of deliveries."""
    activities = WebhookActivities(services.database, services.http, services.sealer, services.settings.webhooks)
    return [
        TaskQueue(
            name=webhooks.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[activities.save_delivery, activities.attempt, WebhookHousekeeping(services).purge],
            # Half of the guarded client's connections: receivers that hang must not keep sources from being asked.
            slots=32,
        )
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Do nothing: webhooks have no work beside their queue."""
