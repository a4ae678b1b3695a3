"""Helpers for tests of webhooks: a receiver that the guard lets through, a worker, and deliveries to look at."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from domain import webhooks
from domain.downloads import names as downloads_names
from domain.webhooks import DeliveryStateAfterAttempt, WebhookDeliveryInput, WebhookEvent, WebhookEventSubject
from infra.secrets import SecretSealer
from infra.settings import Settings
from services.services import Services
from sims.receiver import Received, Receiver, running_receiver
from tests.support.api import ApiClient, running_api
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.webhooks import handle
from workflows.webhooks.delivery import WebhookDelivery

TASK_ID = "dl_" + "0" * 24
DATA = {"task_id": TASK_ID, "file_name": "订单.csv", "rows": 3}

Handle = WorkflowHandle[WebhookDelivery, DeliveryStateAfterAttempt]


@dataclass(frozen=True)
class Webhooks:
    """A running API, worker and receiver, and a project of the test's own."""

    api_client: ApiClient
    receiver: Receiver
    services: Services
    project_id: str
    key: str

    async def send(self, url: str) -> WebhookDeliveryInput:
        """Announce an event to this address."""
        order = make_order(self.services.sealer, self.project_id, url)
        await start(self.services.engine, order)
        return order

    async def read_delivery(self, delivery_id: str) -> dict[str, Any]:
        """What the API lists of a delivery."""
        reply = await self.api_client.ask("GET", f"/v1/downloads/{TASK_ID}/deliveries", key=self.key)
        assert reply.status == 200, reply.body
        found = {each["delivery_id"]: each for each in reply.body["items"]}
        assert delivery_id in found
        delivery: dict[str, Any] = found[delivery_id]
        return delivery

    async def wait_for_state(self, order: WebhookDeliveryInput, state: str, attempts: int) -> dict[str, Any]:
        """Wait until a delivery has this state and number of attempts."""

        async def look() -> dict[str, Any]:
            delivery = await self.read_delivery(order.delivery_id)
            assert (delivery["state"], delivery["attempts"]) == (state, attempts), delivery
            return delivery

        return await eventually(look)

    async def redeliver(self, order: WebhookDeliveryInput) -> None:
        """Ask for it again."""
        path = f"/v1/downloads/{order.owner.id}/deliveries/{order.delivery_id}/redeliver"
        reply = await self.api_client.ask("POST", path, key=self.key)
        assert (reply.status, reply.body["state"]) == (202, "pending"), reply.body

    async def rotate(self, overlap_seconds: int) -> str:
        """A new secret of the project, in clear."""
        path = f"/v1/projects/{self.project_id}/webhook-secrets"
        reply = await self.api_client.ask("POST", path, key=self.key, json={"overlap_seconds": overlap_seconds})
        assert reply.status == 201, reply.body
        secret: str = reply.body["secret"]
        return secret


def make_order(sealer: SecretSealer, project_id: str, url: str) -> WebhookDeliveryInput:
    """An event of a download, for this address."""
    return WebhookDeliveryInput(
        delivery_id=f"msg_{secrets.token_hex(16)}",
        project_id=project_id,
        owner=WebhookEventSubject(system=downloads_names.SYSTEM, id=TASK_ID),
        url=sealer.seal(url),
        event=WebhookEvent(type="download.succeeded", timestamp=datetime.now(UTC), data=DATA),
    )


async def start(engine: Client, order: WebhookDeliveryInput) -> Handle:
    """Start a delivery as another plan would."""
    return await engine.start_workflow(
        WebhookDelivery.run,
        order,
        id=webhooks.build_delivery_workflow_id(order.project_id, order.delivery_id),
        task_queue=webhooks.QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        search_attributes=handle.build_search_attributes(order),
        priority=handle.build_priority(order),
    )


def verify_message(message: Received, secret: str) -> dict[str, Any]:
    """The body of a message, checked by the standard's own library."""
    body: dict[str, Any] = Webhook(secret).verify(message.body, message.headers)
    return body


def with_receiver(settings: Settings, receiver: Receiver, **ladder: Any) -> Settings:
    """Settings whose guard opens the receiver alone; `ladder` replaces settings of webhooks."""
    allowed = receiver.base.removeprefix("http://")
    return settings.model_copy(
        update={
            "guard": settings.guard.model_copy(update={"allow": [allowed]}),
            "webhooks": settings.webhooks.model_copy(update=ladder),
        }
    )


@asynccontextmanager
async def running_webhooks(
    settings: Settings, *, receiver: Receiver | None = None, **ladder: Any
) -> AsyncIterator[Webhooks]:
    """API, worker, receiver and project over the test's own parts; `ladder` replaces settings of webhooks.

    Args:
        receiver: One that runs already; by default another is started.
    """
    async with nullcontext(receiver) if receiver else running_receiver() as receiver:
        settings = with_receiver(settings, receiver, **ladder)
        async with running_api(settings) as api_client, running_worker(settings, [webhooks.QUEUE]) as working:
            project_id, key = await api_client.make_project()
            yield Webhooks(api_client, receiver, working.services, project_id, key)
