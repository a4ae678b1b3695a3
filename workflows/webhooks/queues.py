"""The task queue of webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.webhooks.housekeeping import WebhookHousekeeping
from activities.webhooks.steps import WebhookSteps
from domain.webhooks import names
from services.services import Services
from systems.protocol import TaskQueue
from workflows.housekeeping import HousekeepingWorkflow
from workflows.webhooks.delivery import WebhookDelivery

NAMES: Final = names.QUEUES
WORKFLOWS: Final = (WebhookDelivery,)


def can_serve(queue: str) -> bool:
    """Whether a worker can be told to serve this queue."""
    return queue in NAMES


def build_queues(services: Services) -> list[TaskQueue]:
    """Deliveries."""
    steps = WebhookSteps(services.database, services.http, services.sealer, services.settings.webhooks)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[*WORKFLOWS, HousekeepingWorkflow],
            activities=[steps.enter, steps.attempt, WebhookHousekeeping(services).purge],
            # Half of the guarded client's connections: receivers that hang must not keep sources from being asked.
            slots=32,
        )
    ]


async def run_background(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Run nothing beside the queue."""
