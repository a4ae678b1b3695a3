"""The limiter's writes, on a session that holds the lock of what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Delete, delete, func, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, select

from domain.limits import PermitClaim, RateDemand, SlotDemand, UncheckedSpending, compute_return_time
from infra.database import Session
from infra.limits.tables import Lease, Share, Spending


async def spend(session: Session, rates: Sequence[RateDemand | UncheckedSpending], now: datetime) -> None:
    """Add amounts to what their buckets have spent."""
    for rate in rates:
        if rate.amount:
            statement = insert(Spending).values(
                bucket=rate.bucket, returns_at=compute_return_time(now, rate.window_seconds), amount=rate.amount
            )
            amount = col(Spending.amount) + statement.excluded.amount
            await session.exec(
                statement.on_conflict_do_update(index_elements=["bucket", "returns_at"], set_={"amount": amount})
            )


async def lease(session: Session, slots: Sequence[SlotDemand], now: datetime) -> None:
    """Write slots down as held from now on."""
    for slot in slots:
        statement = insert(Lease).values(
            key=slot.key, holder=slot.holder, expires_at=now + timedelta(seconds=slot.ttl_seconds)
        )
        renewed = {"expires_at": statement.excluded.expires_at}
        await session.exec(statement.on_conflict_do_update(index_elements=["key", "holder"], set_=renewed))


async def share(session: Session, key: str, claim: PermitClaim, expires_at: datetime) -> None:
    """Write a share down, or strike it off when it is empty and nobody waits for it."""
    if not claim.permits and not claim.demand:
        await session.exec(delete(Share).where(col(Share.key) == key, col(Share.holder) == claim.holder))
        return
    values = {
        "permits": claim.permits,
        "demand": claim.demand,
        "since": claim.since,
        "expires_at": expires_at,
    }
    statement = insert(Share).values(key=key, holder=claim.holder, **values)
    await session.exec(statement.on_conflict_do_update(index_elements=["key", "holder"], set_=values))


async def sweep(session: Session) -> int:
    """Delete what is over. Rows that somebody works on are left to the next sweep: waiting could end in a deadlock."""
    return sum([(await session.exec(statement)).rowcount for statement in _sweeps()])


def _sweeps() -> list[Delete]:
    now = func.clock_timestamp()
    spending = select(Spending.bucket, Spending.returns_at).where(col(Spending.returns_at) < now)
    leases = select(Lease.key, Lease.holder).where(col(Lease.expires_at) < now)
    shares = select(Share.key, Share.holder).where(col(Share.expires_at) < now)
    return [
        delete(Spending).where(
            tuple_(col(Spending.bucket), col(Spending.returns_at)).in_(spending.with_for_update(skip_locked=True))
        ),
        delete(Lease).where(tuple_(col(Lease.key), col(Lease.holder)).in_(leases.with_for_update(skip_locked=True))),
        delete(Share).where(tuple_(col(Share.key), col(Share.holder)).in_(shares.with_for_update(skip_locked=True))),
    ]
