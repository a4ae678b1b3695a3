"""Windows, slots and shares over all processes: judged and written under one lock, by the database's clock."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ARRAY, BigInteger, bindparam, delete, func, text
from sqlmodel import col, select

from domain.limits import (
    HeldSlot,
    LimitDecision,
    PermitAllocation,
    PermitClaim,
    PermitShare,
    RateDemand,
    SlotDemand,
    SpentAmount,
    UncheckedSpending,
    compute_return_time,
)
from infra.database import Database, Session
from infra.limits import writing
from infra.limits.tables import Lease, Spending
from infra.limits.tables import Share as ShareRow

HELD_UP_SECONDS = 2.0
"""A process that stops between two statements must not hold up the others for longer than that."""

_LOCK = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :held_up, true), pg_advisory_xact_lock(lock), "
    "clock_timestamp() AS now FROM (SELECT lock FROM unnest(:locks) AS lock ORDER BY lock) AS locks"
).bindparams(bindparam("locks", type_=ARRAY(BigInteger)))


@dataclass(frozen=True, slots=True)
class Sharing:
    """How processes share: how much there is, how long a turn lasts, and how long a share lives unrenewed."""

    limit: int
    turn: timedelta
    ttl: timedelta


class Limiter:
    """Whoever counts with the same database is counted together."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spend(self, bucket: str, amount: int, *, capacity: int, window_seconds: float) -> LimitDecision:
        """Spend an amount if no window, wherever it begins, sees more than the capacity."""
        [verdict] = await self.take([RateDemand(bucket, amount, capacity, window_seconds)], [])
        return verdict

    async def lease(self, key: str, holder: str, *, limit: int, ttl_seconds: float) -> LimitDecision:
        """Take a slot if one is free, or keep it for longer."""
        [verdict] = await self.take([], [SlotDemand(key, holder, limit, ttl_seconds)])
        return verdict

    async def take(self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]) -> list[LimitDecision]:
        """Meet all demands or none; the verdicts come in their order.

        A holder that has all its slots already asks a second time for the same thing: that spends nothing.
        """
        keys = [rate.bucket for rate in rates] + [slot.key for slot in slots]
        async with self._locked(keys) as (session, now):
            spent = await _spent(session, [rate.bucket for rate in rates], now)
            held = await _held(session, [slot.key for slot in slots], now)
            again = bool(slots) and all(slot.is_held(held[slot.key]) for slot in slots)
            fit = [again or rate.fits(spent[rate.bucket]) for rate in rates]
            free = [slot.fits(held[slot.key]) for slot in slots]
            if all(fit) and all(free):
                await writing.lease(session, slots, now)
                if not again:
                    await writing.spend(session, rates, now)
                    _note_spent(spent, rates, now)
                _note_held(held, slots, now)
        return [rate.decide(now, spent[rate.bucket], allowed=fits) for rate, fits in zip(rates, fit, strict=True)] + [
            slot.decide(now, held[slot.key], allowed=fits) for slot, fits in zip(slots, free, strict=True)
        ]

    async def look(self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]) -> list[LimitDecision]:
        """How demands would stand now, in their order; nothing is taken, and nobody waits for it."""
        async with self._database.session() as session:
            now = (await session.exec(select(func.clock_timestamp()))).one()
            spent = await _spent(session, [rate.bucket for rate in rates], now)
            held = await _held(session, [slot.key for slot in slots], now)
        return [
            *(rate.decide(now, spent[rate.bucket], allowed=rate.fits(spent[rate.bucket])) for rate in rates),
            *(slot.decide(now, held[slot.key], allowed=slot.fits(held[slot.key])) for slot in slots),
        ]

    async def hold(self, slots: Sequence[SlotDemand]) -> None:
        """Write slots down as held, whatever their limits, because their holder is at work already."""
        async with self._locked([slot.key for slot in slots]) as (session, now):
            await writing.lease(session, slots, now)

    async def release(self, keys: Iterable[str], holder: str, booking: Sequence[UncheckedSpending] = ()) -> None:
        """Give a holder's slots back. Where it still had one, the bookings are made with it.

        So that work whose size shows only at its end is counted once, however often its end is told.
        """
        keys = list(keys)
        statement = delete(Lease).where(col(Lease.key).in_(keys), col(Lease.holder) == holder)
        async with self._locked(keys) as (session, now):
            if (await session.exec(statement)).rowcount:
                await writing.spend(session, booking, now)

    async def count(self, bucket: str) -> int:
        """What is spent of a bucket and has not come back yet."""
        statement = select(func.coalesce(func.sum(Spending.amount), 0)).where(
            Spending.bucket == bucket, col(Spending.returns_at) > func.clock_timestamp()
        )
        async with self._database.session() as session:
            return int((await session.exec(statement)).one())

    async def share(self, key: str, holder: str, *, in_use: int, demand: int, rules: Sharing) -> PermitShare:
        """My share of the permits under a key, renewed for a while; with no demand and nothing in use it ends.

        `in_use` is what I may have in use until I know the answer.
        """
        async with self._locked([key]) as (session, now):
            claims = await _claims(session, key, now)
            before = claims.pop(holder, PermitClaim(holder, 0, 0, now))
            mine = replace(before.with_permits(in_use, now), demand=demand)
            result = PermitAllocation(rules.limit, rules.turn, now).compute_share(mine, list(claims.values()))
            await writing.share(session, key, mine.with_permits(result.permits, now), now + rules.ttl)
        return result

    async def withdraw(self, holder: str) -> None:
        """Give back every share of a holder."""
        async with self._database.session() as session:
            await session.exec(delete(ShareRow).where(col(ShareRow.holder) == holder))

    async def sweep(self) -> int:
        """Delete the rows that count no more; how many there were."""
        async with self._database.session() as session:
            return await writing.sweep(session)

    @asynccontextmanager
    async def _locked(self, keys: Iterable[str]) -> AsyncIterator[tuple[Session, datetime]]:
        """A transaction that nobody else has with any of these keys, and the database's time in it."""
        async with self._database.session() as session:
            locks, held_up = [_lock_of(key) for key in set(keys)], f"{HELD_UP_SECONDS * 1000:.0f}"
            locked = await session.execute(_LOCK, {"locks": locks, "held_up": held_up})
            yield session, max(row.now for row in locked)


async def _spent(session: Session, buckets: Sequence[str], now: datetime) -> defaultdict[str, list[SpentAmount]]:
    found: defaultdict[str, list[SpentAmount]] = defaultdict(list)
    if buckets:
        query = select(Spending).where(col(Spending.bucket).in_(buckets), col(Spending.returns_at) > now)
        for row in await session.exec(query):
            found[row.bucket].append(SpentAmount(row.amount, row.returns_at))
    return found


async def _held(session: Session, keys: Sequence[str], now: datetime) -> defaultdict[str, list[HeldSlot]]:
    found: defaultdict[str, list[HeldSlot]] = defaultdict(list)
    if keys:
        for row in await session.exec(select(Lease).where(col(Lease.key).in_(keys), col(Lease.expires_at) > now)):
            found[row.key].append(HeldSlot(row.holder, row.expires_at))
    return found


async def _claims(session: Session, key: str, now: datetime) -> dict[str, PermitClaim]:
    rows = await session.exec(select(ShareRow).where(ShareRow.key == key, col(ShareRow.expires_at) > now))
    return {row.holder: PermitClaim(row.holder, row.permits, row.demand, row.since) for row in rows}


def _note_spent(spent: defaultdict[str, list[SpentAmount]], rates: Sequence[RateDemand], now: datetime) -> None:
    for rate in rates:
        if rate.amount:
            spent[rate.bucket].append(SpentAmount(rate.amount, compute_return_time(now, rate.window_seconds)))


def _note_held(held: defaultdict[str, list[HeldSlot]], slots: Sequence[SlotDemand], now: datetime) -> None:
    for slot in slots:
        others = [each for each in held[slot.key] if each.holder != slot.holder]
        held[slot.key] = [*others, HeldSlot(slot.holder, now + timedelta(seconds=slot.ttl_seconds))]


def _lock_of(key: str) -> int:
    return int.from_bytes(hashlib.sha256(f"limit {key}".encode()).digest()[:8], signed=True)
