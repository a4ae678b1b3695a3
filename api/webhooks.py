"""Webhooks over HTTP: the secrets that sign them, and the deliveries of an owner.

The systems declare the routes of deliveries, because their paths name the owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from pydantic import AwareDatetime, Field

from api.http import pagination
from api.http.auth import build_missing_to_caller_fault
from api.http.models import Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess, Routes
from api.projects import ProjectPath, require_key_of_all_systems, require_key_without_expiry
from domain.faults import Conflict, Forbidden
from domain.secrets import SealedText
from domain.webhooks import (
    DeliveryState,
    WebhookDeliveryInput,
    WebhookEvent,
    WebhookEventSubject,
    build_delivery_workflow_id,
    mask_secret,
)
from infra import log
from infra.database import Session
from infra.secrets import refuse_unreadable_seals
from stores import projects as projects_store
from stores import webhooks
from stores.tables.shared import Delivery, DeliveryAttempt, Project, WebhookSecret
from workflows.webhooks import handle

OVERLAP_MAX_SECONDS: Final = 7 * 24 * 3600
ATTEMPTS_SHOWN: Final = 10
DISABLED: Final = (
    "The receiver answered 410 to this delivery or to an earlier one, so nothing more is sent to this address. "
    "Redeliver one of them to begin again."
)

routes = Routes("webhooks", "The secrets that sign messages to your addresses (Standard Webhooks).")


class RotateWebhookSecretRequest(Request):
    """How the secret is replaced."""

    overlap_seconds: int = Field(
        default=24 * 3600, ge=0, le=OVERLAP_MAX_SECONDS, description="how long the secrets before it sign as well"
    )


class WebhookSecretResponse(Response):
    """A secret, masked."""

    masked: str = Field(description="its prefix and last characters, to tell secrets apart")
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = Field(description="until when it signs; null if it stays")


class WebhookSecretsResponse(Response):
    """The secrets that sign now."""

    items: list[WebhookSecretResponse] = Field(description="newest first; empty until the first is needed or asked for")


class NewWebhookSecretResponse(WebhookSecretResponse):
    """A secret just created."""

    secret: str = Field(description="keep it now: it is shown this once and cannot be read again")


class WebhookAttemptResponse(Response):
    """One attempt."""

    started_at: AwareDatetime
    duration_seconds: float
    status: int | None = Field(description="what the receiver answered; null if it did not")
    error: str | None = Field(description="why it was no success; null if it was")


class WebhookDeliveryResponse(Response):
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
    last_attempts: list[WebhookAttemptResponse] = Field(description=f"the last {ATTEMPTS_SHOWN}, newest first")
    workflow_id: str = Field(description="where Temporal shows it")


@routes.get("/v1/projects/{project_id}/webhook-secrets", access=RouteAccess.OWNER)
async def list_secrets(call: Call, path: ProjectPath) -> WebhookSecretsResponse:
    """Show which secrets sign, without showing them."""
    async with call.services.database.session() as session:
        await _require_project(session, path.project_id)
        rows = await webhooks.list_active_secrets(session, path.project_id)
    return WebhookSecretsResponse(items=[WebhookSecretResponse(**_build_secret_fields(row)) for row in rows])


@routes.post(
    "/v1/projects/{project_id}/webhook-secrets",
    access=RouteAccess.OWNER,
    status=201,
    problems={"too_many_secrets": Conflict, "project_revoked": Conflict, "key_lacks_right": Forbidden},
)
async def rotate_secret(call: Call, path: ProjectPath, body: RotateWebhookSecretRequest) -> NewWebhookSecretResponse:
    """Make a new secret and show it.

    It signs at once. The secrets before it sign as well until the overlap ends, so that receivers can be changed one by
    one: a message then carries several signatures, and one that matches is enough.

    A key that is limited to some systems, or that expires, is refused.
    """
    require_key_of_all_systems(call.caller, "The webhook secret")
    require_key_without_expiry(call.caller, "A new webhook secret")
    async with call.services.database.session() as session:
        project = await _require_project(session, path.project_id)
        if project.revoked_at is not None:
            raise Conflict("project_revoked", "This project was revoked, so it gets no new secret.", "Make a new one.")
        overlap = timedelta(seconds=body.overlap_seconds)
        created = await webhooks.rotate_secret(session, call.services.sealer, path.project_id, overlap)
    log.get(__name__).info("webhook_secret_rotated", project_id=path.project_id, last4=created.row.last4)
    return NewWebhookSecretResponse(**_build_secret_fields(created.row), secret=created.text)


async def list_deliveries(
    call: Call, project_id: str, owner: WebhookEventSubject, query: PageQuery
) -> PageResponse[WebhookDeliveryResponse]:
    """Return a page of an owner's deliveries, newest first; it is empty if there is no such owner."""
    database = call.services.database
    rows = await webhooks.list_delivery_page_plus_one(database, project_id, owner, query.after, query.limit)
    attempts = await webhooks.list_last_attempts_by_delivery(
        database, [row.delivery_id for row in rows], ATTEMPTS_SHOWN
    )
    return pagination.build_page(
        rows,
        query.limit,
        lambda row: _build_delivery_response(row, attempts),
        lambda row: (row.created_at, row.delivery_id),
    )


async def redeliver_webhook(
    call: Call, project_id: str, owner: WebhookEventSubject, delivery_id: str
) -> WebhookDeliveryResponse:
    """Send a delivery again now, under the same `webhook-id`, with a full set of retries.

    Raises:
        Missing: The owner has no such delivery.
        Conflict: No key opens its address.
    """
    database = call.services.database
    row = await webhooks.find_delivery(database, project_id, owner, delivery_id)
    if row is None:
        raise build_missing_to_caller_fault()
    attempts = await webhooks.list_last_attempts_by_delivery(database, [row.delivery_id], ATTEMPTS_SHOWN)
    url = SealedText(token=row.url)
    with refuse_unreadable_seals():
        # `haulage reseal` may have passed over the row since it was read, and counted the runs.
        url = call.services.sealer.reseal(url) or url
    delivery = WebhookDeliveryInput(
        delivery_id=row.delivery_id,
        project_id=row.project_id,
        owner=owner,
        url=url,
        event=WebhookEvent.model_validate_json(row.body),
        redelivery=True,
    )
    task_timeout = timedelta(seconds=call.services.settings.engine.task_timeout_seconds)
    await handle.redeliver(call.services.engine, delivery, task_timeout)
    log.get(__name__).info("webhook_redelivered", delivery_id=row.delivery_id)
    return _build_delivery_response(row, attempts).model_copy(
        update={"state": DeliveryState.PENDING, "reason": None, "finished_at": None}
    )


async def _require_project(session: Session, project_id: str) -> Project:
    project = await projects_store.find_project(session, project_id)
    if project is None:
        raise build_missing_to_caller_fault()
    return project


def _build_secret_fields(row: WebhookSecret) -> dict[str, object]:
    return {"masked": mask_secret(row.last4), "created_at": row.created_at, "expires_at": row.expires_at}


def _build_delivery_response(
    row: Delivery, attempts: Mapping[str, Sequence[DeliveryAttempt]]
) -> WebhookDeliveryResponse:
    return WebhookDeliveryResponse(
        delivery_id=row.delivery_id,
        type=row.event_type,
        receiver=row.receiver,
        state=DeliveryState(row.state),
        reason=DISABLED if row.state == DeliveryState.DISABLED else None,
        created_at=row.created_at,
        next_attempt_at=row.next_attempt_at,
        finished_at=row.finished_at,
        attempts=row.attempts,
        last_attempts=[
            WebhookAttemptResponse.model_validate(each, from_attributes=True) for each in attempts[row.delivery_id]
        ],
        workflow_id=build_delivery_workflow_id(row.project_id, row.delivery_id),
    )
