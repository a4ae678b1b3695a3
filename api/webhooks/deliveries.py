"""Deliveries of one owner: what was sent to its address, and sending it again. Systems declare the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from pydantic import AwareDatetime, Field

from api.http import pagination
from api.http.auth import build_not_found
from api.http.models import Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call
from domain.sealed import SealedText
from domain.webhooks import names
from domain.webhooks.deliveries import DeliveryState, Owner, WebhookEvent, WebhookOrder
from infra import log
from stores.tables.webhooks import Delivery, DeliveryAttempt
from stores.webhooks import ledger
from workflows.webhooks import handle

ATTEMPTS_SHOWN: Final = 10
DISABLED: Final = (
    "The receiver answered 410 to this delivery or to an earlier one, so nothing more is sent to this address. "
    "Redeliver one of them to begin again."
)


class ShownAttempt(Response):
    """One attempt."""

    started_at: AwareDatetime
    duration_seconds: float
    status: int | None = Field(description="what the receiver answered; null if it did not")
    error: str | None = Field(description="why it was no success; null if it was")


class ShownDelivery(Response):
    """One event for one receiver."""

    delivery_id: str = Field(description="the `webhook-id` of every attempt")
    type: str = Field(description="what happened", examples=["download.succeeded"])
    receiver: str = Field(description="host and port of the address")
    state: DeliveryState = Field(
        description="`disabled`: the receiver answered 410, so nothing is sent until you redeliver"
    )
    reason: str | None = Field(description="why nothing more is sent, where it is `disabled`; else null")
    created_at: AwareDatetime
    next_attempt_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    attempts: int = Field(description="how many were made in all")
    last_attempts: list[ShownAttempt] = Field(description=f"the last {ATTEMPTS_SHOWN}, newest first")
    workflow_id: str = Field(description="where Temporal shows it")


async def list_page(call: Call, project_id: str, owner: Owner, query: PageQuery) -> PageResponse[ShownDelivery]:
    """A page of what was sent for an owner, newest first; empty also where there is no such owner."""
    database = call.services.database
    rows = await ledger.list_page(database, project_id, owner, query.after, query.limit)
    attempts = await ledger.list_attempts(database, [row.delivery_id for row in rows], ATTEMPTS_SHOWN)
    return pagination.build_page(
        rows, query.limit, lambda row: _show(row, attempts), lambda row: (row.created_at, row.delivery_id)
    )


async def redeliver(call: Call, project_id: str, owner: Owner, delivery_id: str) -> ShownDelivery:
    """Send a delivery of this owner again, now, under its `webhook-id`; it begins its attempts anew.

    Raises:
        Missing: The owner has no such delivery.
    """
    database = call.services.database
    row = await ledger.find(database, project_id, owner, delivery_id)
    if row is None:
        raise build_not_found()
    attempts = await ledger.list_attempts(database, [row.delivery_id], ATTEMPTS_SHOWN)
    order = WebhookOrder(
        delivery_id=row.delivery_id,
        project_id=row.project_id,
        owner=owner,
        url=SealedText(token=row.url),
        event=WebhookEvent.model_validate_json(row.body),
        redelivery=True,
    )
    task_timeout = timedelta(seconds=call.services.settings.engine.task_timeout_seconds)
    await handle.redeliver(call.services.engine, order, task_timeout)
    log.get(__name__).info("webhook_redelivered", delivery_id=row.delivery_id)
    return _show(row, attempts).model_copy(update={"state": DeliveryState.PENDING, "reason": None, "finished_at": None})


def _show(row: Delivery, attempts: Mapping[str, Sequence[DeliveryAttempt]]) -> ShownDelivery:
    return ShownDelivery(
        delivery_id=row.delivery_id,
        type=row.event_type,
        receiver=row.receiver,
        state=DeliveryState(row.state),
        reason=DISABLED if row.state == DeliveryState.DISABLED else None,
        created_at=row.created_at,
        next_attempt_at=row.next_attempt_at,
        finished_at=row.finished_at,
        attempts=row.attempts,
        last_attempts=[ShownAttempt.model_validate(each, from_attributes=True) for each in attempts[row.delivery_id]],
        workflow_id=names.workflow_id(row.project_id, row.delivery_id),
    )
