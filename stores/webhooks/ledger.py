"""The ledger of deliveries: what is to be posted where, each attempt, and how it ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, delete, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from domain import egress
from domain.webhooks.deliveries import DeliveryState, Owner, Progress, WebhookOrder
from infra.database import Database
from stores.shared import keyset
from stores.tables.webhooks import Delivery, DeliveryAttempt


async def enter(database: Database, order: WebhookOrder, url: str) -> DeliveryState:
    """Enter a delivery, or open it again; where the receiver said 410 before, it ends here unless a person asked."""
    now, endpoint = datetime.now(UTC), _endpoint(order.project_id, url)
    async with database.session() as session:
        disabled = not order.redelivery and await _is_disabled(session, endpoint)
        state = DeliveryState.DISABLED if disabled else DeliveryState.PENDING
        standing = {
            "state": state,
            "next_attempt_at": None if disabled else now,
            "finished_at": now if disabled else None,
        }
        statement = insert(Delivery).values(
            delivery_id=order.delivery_id,
            project_id=order.project_id,
            owner_system=order.owner.system,
            owner_id=order.owner.id,
            event_type=order.event.type,
            body=order.event.body.decode(),
            url=order.url.token,
            receiver=str(egress.parse_url(url)),
            endpoint=endpoint,
            created_at=now,
            attempts=0,
            **standing,
        )
        await session.exec(statement.on_conflict_do_update(index_elements=["delivery_id"], set_=standing))
    return state


async def read(database: Database, delivery_id: str) -> Delivery:
    """What is to be posted."""
    async with database.session() as session:
        return await session.get_one(Delivery, delivery_id)


async def list_page(
    database: Database, project_id: str, owner: Owner, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Delivery]:
    """Deliveries of an owner, newest first, and one more if another page follows."""
    statement = select(Delivery).where(*_is_of(project_id, owner))
    statement = keyset.select_page(statement, (Delivery.created_at, Delivery.delivery_id), after, limit)
    async with database.session() as session:
        return (await session.exec(statement)).all()


async def find(database: Database, project_id: str, owner: Owner, delivery_id: str) -> Delivery | None:
    """A delivery of this owner."""
    statement = select(Delivery).where(Delivery.delivery_id == delivery_id, *_is_of(project_id, owner))
    async with database.session() as session:
        return (await session.exec(statement)).one_or_none()


async def list_attempts(
    database: Database, delivery_ids: Sequence[str], limit: int
) -> Mapping[str, Sequence[DeliveryAttempt]]:
    """The last attempts of each of these deliveries, newest first."""
    newest_first = col(DeliveryAttempt.attempt_id).desc()
    place = func.row_number().over(partition_by=DeliveryAttempt.delivery_id, order_by=newest_first)
    ranked = (
        select(DeliveryAttempt.attempt_id, place.label("place"))
        .where(col(DeliveryAttempt.delivery_id).in_(delivery_ids))
        .subquery()
    )
    statement = select(DeliveryAttempt).join(ranked, ranked.c.attempt_id == DeliveryAttempt.attempt_id)
    found: dict[str, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    async with database.session() as session:
        for attempt in await session.exec(statement.where(ranked.c.place <= limit).order_by(newest_first)):
            found[attempt.delivery_id].append(attempt)
    return found


async def book(
    database: Database, delivery_id: str, started_at: datetime, duration_seconds: float, progress: Progress
) -> None:
    """Book an attempt, and what follows from it."""
    now = datetime.now(UTC)
    pause = progress.pause_seconds
    async with database.session() as session:
        session.add(
            DeliveryAttempt(
                delivery_id=delivery_id,
                started_at=started_at,
                duration_seconds=duration_seconds,
                status=progress.status,
                error=progress.error,
            )
        )
        await session.exec(
            update(Delivery)
            .where(col(Delivery.delivery_id) == delivery_id)
            .values(
                state=progress.state,
                attempts=Delivery.attempts + 1,
                next_attempt_at=None if pause is None else now + timedelta(seconds=pause),
                finished_at=now if pause is None else None,
            )
        )


async def purge(database: Database, before: datetime, limit: int) -> int:
    """Remove deliveries that ended before, and tell how many; with the last word of a receiver goes its 410."""
    over = select(Delivery.delivery_id).where(col(Delivery.finished_at) < before).limit(limit)
    # What is being opened again at this moment is left alone.
    chosen = over.with_for_update(skip_locked=True)
    async with database.session() as session:
        return (await session.exec(delete(Delivery).where(col(Delivery.delivery_id).in_(chosen)))).rowcount


async def _is_disabled(session: AsyncSession, endpoint: bytes) -> bool:
    """Whether the receiver's last word was 410: nobody redelivered there with success since."""
    words = (DeliveryState.SUCCEEDED, DeliveryState.DISABLED)
    statement = select(Delivery.state).where(Delivery.endpoint == endpoint, col(Delivery.state).in_(words))
    last = await session.exec(statement.order_by(col(Delivery.finished_at).desc()).limit(1))
    return last.first() == DeliveryState.DISABLED


def _is_of(project_id: str, owner: Owner) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Delivery.owner_id) == owner.id,
        col(Delivery.owner_system) == owner.system,
        col(Delivery.project_id) == project_id,
    )


def _endpoint(project_id: str, url: str) -> bytes:
    return hashlib.sha256(f"{project_id} {url}".encode()).digest()
