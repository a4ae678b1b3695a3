"""Webhooks at the door: the secret that signs them, what was delivered, and delivering it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pydantic import AwareDatetime, Field
from sqlmodel import col, func, select, tuple_
from sqlmodel.ext.asyncio.session import AsyncSession
from temporalio.service import RPCError, RPCStatusCode

from api import paging
from api.auth import not_here
from api.models import Answer, Request
from api.paging import Page, PageQuery
from api.routes import Access, Call, Routes
from domain import projects
from domain.downloads import names as downloads_names
from domain.faults import Conflict, Invalid
from domain.sealed import Sealed
from domain.webhooks import deliveries as rules
from domain.webhooks import names
from domain.webhooks.deliveries import DeliveryState, WebhookEvent, WebhookOrder
from infra import log
from stores.tables.downloads import Download
from stores.tables.projects import Project
from stores.tables.webhooks import Delivery, DeliveryAttempt, WebhookSecret
from stores.webhooks import signing
from workflows.webhooks import handle

ATTEMPTS_SHOWN = 10
OVERLAP_MAX_SECONDS = 7 * 24 * 3600

routes = Routes("webhooks", "Signed messages to your `callback` address when a download ends (Standard Webhooks).")


class ProjectPath(Request):
    """A project."""

    project_id: str = Field(pattern=projects.PROJECT_ID_PATTERN)


class TaskPath(Request):
    """A download."""

    task_id: str = Field(pattern=r"^dl_[0-9a-z]{24}$")


class DeliveryPath(TaskPath):
    """One of its deliveries."""

    delivery_id: str = Field(pattern=rules.DELIVERY_ID_PATTERN)


class SecretRotation(Request):
    """How the secret is replaced."""

    overlap_seconds: int = Field(
        default=24 * 3600, ge=0, le=OVERLAP_MAX_SECONDS, description="how long the secrets before it sign as well"
    )


class ShownSecret(Answer):
    """A secret, masked."""

    masked: str = Field(description="its prefix and last characters, to tell secrets apart")
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = Field(description="until when it signs; null if it stays")


class Secrets(Answer):
    """The secrets that sign now."""

    secrets: list[ShownSecret] = Field(description="newest first; empty until the first is needed or asked for")


class NewSecret(ShownSecret):
    """A secret just made."""

    secret: str = Field(description="keep it now: it is shown this once and cannot be read again")


DISABLED = (
    "The receiver answered 410 to this delivery or to an earlier one, so nothing more is sent to this address. "
    "Redeliver one of them to begin again."
)


class ShownAttempt(Answer):
    """One attempt."""

    started_at: AwareDatetime
    duration_seconds: float
    status: int | None = Field(description="what the receiver answered; null if it did not")
    error: str | None = Field(description="why it was no success; null if it was")


class ShownDelivery(Answer):
    """One event for one receiver."""

    delivery_id: str = Field(description="the `webhook-id` of every attempt")
    type: str = Field(description="what happened", examples=["download.succeeded"])
    receiver: str = Field(description="host and port of the callback address")
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


@routes.get("/v1/projects/{project_id}/webhook-secret", access=Access.OWNER)
async def read_secrets(call: Call, path: ProjectPath) -> Secrets:
    """Show which secrets sign, without showing them."""
    async with call.services.database.session() as session:
        await _project(session, path.project_id)
        rows = await signing.live(session, path.project_id)
    return Secrets(secrets=[ShownSecret(**_show_secret(row)) for row in rows])


@routes.post(
    "/v1/projects/{project_id}/webhook-secret",
    access=Access.OWNER,
    status=201,
    problems={"too_many_secrets": Conflict, "project_revoked": Conflict},
)
async def rotate_secret(call: Call, path: ProjectPath, body: SecretRotation) -> NewSecret:
    """Make a new secret and show it.

    It signs at once. The secrets before it sign as well until the overlap ends, so that receivers can be changed one by
    one: a message then carries several signatures, and one that matches is enough.
    """
    async with call.services.database.session() as session:
        project = await _project(session, path.project_id)
        if project.revoked_at is not None:
            raise Conflict("project_revoked", "This project was revoked, so it gets no new secret.", "Make a new one.")
        overlap = timedelta(seconds=body.overlap_seconds)
        minted = await signing.rotate(session, call.services.sealer, path.project_id, overlap)
    log.get(__name__).info("webhook_secret_rotated", project_id=path.project_id, last4=minted.row.last4)
    return NewSecret(**_show_secret(minted.row), secret=minted.text)


@routes.get("/v1/downloads/{task_id}/deliveries", access=Access.PROJECT, problems={"cursor_invalid": Invalid})
async def browse(call: Call, path: TaskPath, query: PageQuery) -> Page[ShownDelivery]:
    """List what was sent to the callback address of a download, newest first."""
    statement = select(Delivery).where(Delivery.task_id == path.task_id, Delivery.project_id == call.project_id)
    statement = statement.order_by(col(Delivery.created_at).desc(), col(Delivery.delivery_id).desc())
    if query.after:
        statement = statement.where(tuple_(Delivery.created_at, Delivery.delivery_id) < query.after)
    async with call.services.database.session() as session:
        rows = (await session.exec(statement.limit(query.limit + 1))).all()
        attempts = await _last_attempts(session, [row.delivery_id for row in rows])
    if not rows:
        await _require_download(call, path.task_id)
    return paging.page(
        rows, query.limit, lambda row: _show(row, attempts), lambda row: (row.created_at, row.delivery_id)
    )


@routes.post("/v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver", access=Access.PROJECT, status=202)
async def redeliver(call: Call, path: DeliveryPath) -> ShownDelivery:
    """Send it again, now.

    It keeps its `webhook-id` and its body, and begins the attempts anew: whether it is still being tried, has arrived,
    has failed, or was stopped by a 410.
    """
    async with call.services.database.session() as session:
        row = await session.get(Delivery, path.delivery_id)
        if row is None or (row.project_id, row.task_id) != (call.project_id, path.task_id):
            raise not_here()
        attempts = await _last_attempts(session, [row.delivery_id])
    await _start(call, row)
    log.get(__name__).info("webhook_redelivered", delivery_id=row.delivery_id)
    return _show(row, attempts).model_copy(update={"state": DeliveryState.PENDING, "reason": None, "finished_at": None})


async def _start(call: Call, row: Delivery) -> None:
    """Wake the delivery that waits for its next attempt, or start it anew."""
    order = WebhookOrder(
        delivery_id=row.delivery_id,
        project_id=row.project_id,
        task_id=row.task_id,
        url=Sealed(token=row.url),
        event=WebhookEvent.model_validate_json(row.body),
        redelivery=True,
    )
    task_timeout = timedelta(seconds=call.services.settings.engine.task_timeout_seconds)
    await handle.redeliver(call.services.engine, order, task_timeout)


async def _require_download(call: Call, task_id: str) -> None:
    """A download without deliveries is one, also before its catalogue row is there."""
    async with call.services.database.session() as session:
        row = await session.get(Download, task_id)
    if row is not None and row.project_id == call.project_id:
        return
    try:
        await call.services.engine.get_workflow_handle(downloads_names.workflow_id(call.project_id, task_id)).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise not_here() from None


async def _project(session: AsyncSession, project_id: str) -> Project:
    project = await session.get(Project, project_id)
    if project is None:
        raise not_here()
    return project


async def _last_attempts(session: AsyncSession, delivery_ids: Sequence[str]) -> Mapping[str, list[DeliveryAttempt]]:
    newest_first = col(DeliveryAttempt.attempt_id).desc()
    place = func.row_number().over(partition_by=DeliveryAttempt.delivery_id, order_by=newest_first)
    ranked = (
        select(DeliveryAttempt.attempt_id, place.label("place"))
        .where(col(DeliveryAttempt.delivery_id).in_(delivery_ids))
        .subquery()
    )
    statement = select(DeliveryAttempt).join(ranked, ranked.c.attempt_id == DeliveryAttempt.attempt_id)
    found: dict[str, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    for attempt in await session.exec(statement.where(ranked.c.place <= ATTEMPTS_SHOWN).order_by(newest_first)):
        found[attempt.delivery_id].append(attempt)
    return found


def _show(row: Delivery, attempts: Mapping[str, list[DeliveryAttempt]]) -> ShownDelivery:
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


def _show_secret(row: WebhookSecret) -> dict[str, object]:
    return {"masked": rules.masked(row.last4), "created_at": row.created_at, "expires_at": row.expires_at}
