"""Webhooks in the database: deliveries with their attempts, and the secrets that sign them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, case, delete, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import and_, col, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from domain import egress
from domain.faults import Conflict
from domain.secrets import SealedText
from domain.webhooks import (
    SECRET_BYTES,
    DeliveryState,
    DeliveryStateAfterAttempt,
    WebhookDeliveryInput,
    WebhookEventSubject,
    format_secret,
)
from infra.database import Database
from infra.secrets import SecretSealer
from stores import keyset
from stores.tables.shared import Delivery, DeliveryAttempt, Project, WebhookSecret

ACTIVE_SECRETS_MAX = 5
"""Each active secret adds a signature to the header of every attempt."""
UNREADABLE_RECEIVER: Final = "an address that no key opens"
"""Stored in place of host and port."""


async def insert_or_reset_delivery(
    database: Database, delivery: WebhookDeliveryInput, clear_url: str | None
) -> DeliveryState:
    """Insert a delivery, or make an existing one pending again; return its state.

    The state is disabled if the receiver last answered 410, unless a user asked for this redelivery.

    Args:
        clear_url: The address of the receiver, of which only a hash and the host are stored in clear; None if no key
            opens it. Such a delivery does not know what the same address answered to others.
    """
    now, endpoint = datetime.now(UTC), _hash_endpoint(delivery.project_id, clear_url or delivery.url.token)
    async with database.session() as session:
        disabled_at = None if delivery.redelivery else await _find_time_of_disabling(session, endpoint)
        disabled = disabled_at is not None
        state = DeliveryState.DISABLED if disabled else DeliveryState.PENDING
        # All that is written again of a delivery that exists: its body and its attempts stay as they are.
        changes = {
            "state": state,
            "next_attempt_at": None if disabled else now,
            "finished_at": now if disabled else None,
        }
        had_ended = col(Delivery.finished_at).is_not(None)
        pending_since = case((had_ended, now), else_=col(Delivery.pending_since))
        statement = insert(Delivery).values(
            delivery_id=delivery.delivery_id,
            project_id=delivery.project_id,
            owner_system=delivery.owner.system,
            owner_id=delivery.owner.id,
            event_type=delivery.event.type,
            body=delivery.event.body.decode(),
            url=delivery.url.token,  # sealed
            receiver=str(egress.parse_url(clear_url)) if clear_url else UNREADABLE_RECEIVER,  # lists show it
            endpoint=endpoint,  # finds what the same address last answered to another delivery
            created_at=now,
            pending_since=now,
            disabled_at=disabled_at,
            attempts=0,
            **changes,
        )
        reset = {**changes, "pending_since": pending_since}
        await session.exec(statement.on_conflict_do_update(index_elements=["delivery_id"], set_=reset))
    return state


async def load_delivery_to_attempt(database: Database, delivery_id: str, *, is_redelivery: bool) -> Delivery:
    """Return a delivery that exists; end it as disabled if its receiver has answered 410 to another one meanwhile.

    Args:
        is_redelivery: Whether a user asked for it; then it is attempted all the same.
    """
    async with database.session() as session:
        delivery = await session.get_one(Delivery, delivery_id)
        if not is_redelivery and (disabled_at := await _find_time_of_disabling(session, delivery.endpoint)):
            delivery.state, delivery.disabled_at = DeliveryState.DISABLED, disabled_at
            delivery.next_attempt_at, delivery.finished_at = None, datetime.now(UTC)
    return delivery


async def list_delivery_page_plus_one(
    database: Database, project_id: str, owner: WebhookEventSubject, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Delivery]:
    """Return a page of an owner's deliveries, newest first, and one more if another page follows."""
    statement = select(Delivery).where(*_build_owner_conditions(project_id, owner))
    statement = keyset.select_page_plus_one(statement, (Delivery.created_at, Delivery.delivery_id), after, limit)
    async with database.session() as session:
        return (await session.exec(statement)).all()


async def find_delivery(
    database: Database, project_id: str, owner: WebhookEventSubject, delivery_id: str
) -> Delivery | None:
    """Return a delivery if it belongs to this owner."""
    statement = select(Delivery).where(Delivery.delivery_id == delivery_id, *_build_owner_conditions(project_id, owner))
    async with database.session() as session:
        return (await session.exec(statement)).one_or_none()


async def list_last_attempts_by_delivery(
    database: Database, delivery_ids: Sequence[str], limit: int
) -> Mapping[str, Sequence[DeliveryAttempt]]:
    """Return the last attempts of each delivery, newest first."""
    newest_first = col(DeliveryAttempt.attempt_id).desc()
    place = func.row_number().over(partition_by=DeliveryAttempt.delivery_id, order_by=newest_first)
    ranked = (
        select(DeliveryAttempt.attempt_id, place.label("place"))
        .where(col(DeliveryAttempt.delivery_id).in_(delivery_ids))
        .subquery()
    )
    statement = select(DeliveryAttempt).join(ranked, ranked.c.attempt_id == DeliveryAttempt.attempt_id)
    attempts: dict[str, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    async with database.session() as session:
        for attempt in await session.exec(statement.where(ranked.c.place <= limit).order_by(newest_first)):
            attempts[attempt.delivery_id].append(attempt)
    return attempts


@dataclass(frozen=True, slots=True)
class PendingDeliveries:
    """Deliveries that have not ended."""

    count: int
    oldest_at: datetime | None

    def compute_age_of_oldest(self) -> float:
        """Return the age of the oldest in seconds; 0 if there is none."""
        return (datetime.now(UTC) - self.oldest_at).total_seconds() if self.oldest_at else 0.0


async def count_pending_deliveries(database: Database) -> PendingDeliveries:
    """Count the deliveries that have not ended, of all projects."""
    statement = select(func.count(), func.min(Delivery.pending_since)).where(col(Delivery.finished_at).is_(None))
    async with database.session() as session:
        count, oldest_at = (await session.exec(statement)).one()
    return PendingDeliveries(count, oldest_at)


@dataclass(frozen=True, slots=True)
class FailingReceiver:
    """A receiver that did not accept the last attempts of some deliveries."""

    receiver: str
    count: int
    oldest_at: datetime


async def list_receivers_of_unfinished_failing_deliveries(database: Database) -> list[FailingReceiver]:
    """Return the receivers with deliveries that were attempted and have not ended, those that fail longest first."""
    oldest = func.min(Delivery.pending_since)
    # Attempts before a user had it sent again say nothing: the next one is due at that very time.
    was_attempted = and_(col(Delivery.attempts) > 0, col(Delivery.next_attempt_at) > col(Delivery.pending_since))
    statement = (
        select(Delivery.receiver, func.count(), oldest)
        .where(col(Delivery.finished_at).is_(None), was_attempted)
        .group_by(Delivery.receiver)
        .order_by(oldest)
    )
    async with database.session() as session:
        return [FailingReceiver(*row) for row in await session.exec(statement)]


async def save_attempt_and_update_delivery(
    database: Database,
    delivery_id: str,
    started_at: datetime,
    duration_seconds: float,
    progress: DeliveryStateAfterAttempt,
    *,
    is_redelivery: bool,
) -> None:
    """Insert an attempt, and update its delivery to the resulting state, in one transaction.

    An attempt that Temporal took for lost may end after the one that replaced it, whose state then stays, also where
    that one posted nothing and ended the delivery as disabled.

    Args:
        started_at: By Temporal's clock, which all workers share.
    """
    now, pause = datetime.now(UTC), progress.pause_seconds
    later = select(DeliveryAttempt.attempt_id).where(
        DeliveryAttempt.delivery_id == delivery_id, col(DeliveryAttempt.started_at) > started_at
    )
    async with database.session() as session:
        delivery = await session.get_one(Delivery, delivery_id, with_for_update=True)
        is_latest = (await session.exec(later.limit(1))).first() is None
        session.add(
            DeliveryAttempt(
                delivery_id=delivery_id,
                started_at=started_at,
                duration_seconds=duration_seconds,
                status=progress.status,
                error=progress.error,
            )
        )
        delivery.attempts += 1
        if is_latest and (is_redelivery or delivery.state != DeliveryState.DISABLED):
            delivery.state = progress.state
            delivery.next_attempt_at = None if pause is None else now + timedelta(seconds=pause)
            delivery.finished_at = now if pause is None else None
            if progress.state is DeliveryState.DISABLED:
                delivery.disabled_at = now


async def enable_receiver(database: Database, endpoint: bytes) -> None:
    """Forget that a receiver answered 410, as it has accepted a redelivery."""
    disabled = _build_disabled_conditions(endpoint)
    locked = select(Delivery.delivery_id).where(*disabled).order_by(Delivery.delivery_id).with_for_update()
    async with database.session() as session:
        if (await session.exec(locked)).first() is not None:
            await session.exec(update(Delivery).where(*disabled).values(disabled_at=None))


async def purge_ended_deliveries(database: Database, before: datetime, limit: int) -> int:
    """Delete deliveries that ended before a time, with their attempts; return how many.

    A receiver whose 410 is deleted with its last delivery is no longer disabled.
    """
    expired = select(Delivery.delivery_id).where(col(Delivery.finished_at) < before).limit(limit)
    # A delivery that is being made pending again at this moment is left alone.
    chosen = expired.with_for_update(skip_locked=True)
    async with database.session() as session:
        return (await session.exec(delete(Delivery).where(col(Delivery.delivery_id).in_(chosen)))).rowcount


@dataclass(frozen=True)
class CreatedSecret:
    """A secret just created, with its text, which is stored only sealed."""

    row: WebhookSecret
    text: str = field(repr=False)


async def load_or_create_signing_secrets(database: Database, sealer: SecretSealer, project_id: str) -> list[str]:
    """Return the active secrets of a project in clear, newest first; create the first one if there is none."""
    async with database.session() as session:
        rows = await list_active_secrets(session, project_id)
        if not rows:
            await _lock_project(session, project_id)
            rows = await list_active_secrets(session, project_id) or [
                (await _create_secret(session, sealer, project_id)).row
            ]
    return [sealer.open(SealedText(token=row.sealed)) for row in rows]


async def list_active_secrets(session: AsyncSession, project_id: str) -> Sequence[WebhookSecret]:
    """Return the secrets of a project that have not expired, newest first."""
    statement = select(WebhookSecret).where(WebhookSecret.project_id == project_id, _build_unexpired_condition())
    return (await session.exec(statement.order_by(col(WebhookSecret.secret_id).desc()))).all()


async def rotate_secret(
    session: AsyncSession, sealer: SecretSealer, project_id: str, overlap: timedelta
) -> CreatedSecret:
    """Create a secret, and let the earlier ones expire after the overlap at the latest.

    Raises:
        Conflict: The project has as many active secrets as fit into the signature header.
    """
    await _lock_project(session, project_id)
    if overlap and len(await list_active_secrets(session, project_id)) >= ACTIVE_SECRETS_MAX:
        raise Conflict(
            "too_many_secrets",
            f"This project has {ACTIVE_SECRETS_MAX} secrets that sign at the same time.",
            "Wait until one expires, or end them all at once with `overlap_seconds` 0.",
        )
    ends = func.now() + overlap
    await session.exec(
        update(WebhookSecret)
        .where(col(WebhookSecret.project_id) == project_id, _build_unexpired_condition())
        .values(expires_at=func.least(func.coalesce(WebhookSecret.expires_at, ends), ends))
    )
    return await _create_secret(session, sealer, project_id)


async def _find_time_of_disabling(session: AsyncSession, endpoint: bytes) -> datetime | None:
    """Return when the receiver answered 410; None if it did not, or has accepted a redelivery since."""
    newest_first = (
        select(Delivery.disabled_at)
        .where(*_build_disabled_conditions(endpoint))
        .order_by(col(Delivery.disabled_at).desc())
    )
    # Locked: `enable_receiver` waits until the rows are written that this time is copied to.
    return (await session.exec(newest_first.limit(1).with_for_update(read=True))).first()


def _build_disabled_conditions(endpoint: bytes) -> tuple[ColumnElement[bool], ...]:
    return (col(Delivery.endpoint) == endpoint, col(Delivery.disabled_at).is_not(None))


def _build_owner_conditions(project_id: str, owner: WebhookEventSubject) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Delivery.owner_id) == owner.id,
        col(Delivery.owner_system) == owner.system,
        col(Delivery.project_id) == project_id,
    )


def _hash_endpoint(project_id: str, url: str) -> bytes:
    return hashlib.sha256(f"{project_id} {url}".encode()).digest()


async def _create_secret(session: AsyncSession, sealer: SecretSealer, project_id: str) -> CreatedSecret:
    text = format_secret(secrets.token_bytes(SECRET_BYTES))
    now = (await session.exec(select(func.now()))).one()
    row = WebhookSecret(project_id=project_id, sealed=sealer.seal(text).token, last4=text[-4:], created_at=now)
    session.add(row)
    await session.flush()
    return CreatedSecret(row, text)


async def _lock_project(session: AsyncSession, project_id: str) -> None:
    # Two transactions that find no secret create one, and two rotations run one after the other.
    await session.get_one(Project, project_id, with_for_update=True)


def _build_unexpired_condition() -> ColumnElement[bool]:
    return or_(col(WebhookSecret.expires_at).is_(None), col(WebhookSecret.expires_at) > func.now())
