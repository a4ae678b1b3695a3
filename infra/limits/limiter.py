"""The limiter: windows, slots and shares over all processes, judged and written under one lock of the database."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import asyncpg
from sqlalchemy import ARRAY, BigInteger, Delete, Text, bindparam, delete, func, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Field, col, select

from domain.limits import (
    FairPermitAllocation,
    HeldSlot,
    LimitDecision,
    PermitClaim,
    RateDemand,
    SlotDemand,
    SpentAmount,
    UncheckedSpending,
    UsableAndHeldPermits,
    compute_time_when_spent_amount_returns,
)
from infra.database import Database, Session, TableRow, UtcTime

HELD_UP_SECONDS = 2.0
"""After this the server ends the transaction of a process that stopped between two statements, and frees its lock."""

EXPIRED_SLOTS_KEPT = timedelta(days=7)
"""How long an expired slot can still be released, so that what its holder used is counted however late it ends."""

_LOCK = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :held_up, true), pg_advisory_xact_lock(lock), "
    "clock_timestamp() AS now FROM (SELECT lock FROM unnest(:locks) AS lock ORDER BY lock) AS locks"
).bindparams(bindparam("locks", type_=ARRAY(BigInteger)))

_ADD_SPENDING: Final = """
    INSERT INTO limit_spending AS spent (bucket, returns_at, amount) VALUES ($1, $2, $3)
    ON CONFLICT (bucket, returns_at) DO UPDATE SET amount = spent.amount + excluded.amount
"""


class LimitSpendingRow(TableRow, table=True):
    """An amount that was spent of a bucket and comes back at one moment."""

    __tablename__ = "limit_spending"

    bucket: str = Field(primary_key=True, sa_type=Text)
    returns_at: datetime = Field(primary_key=True, sa_type=UtcTime, index=True)
    amount: int = Field(sa_type=BigInteger)


class SlotLeaseRow(TableRow, table=True):
    """A slot that is held until it is released or expires."""

    __tablename__ = "limit_leases"

    key: str = Field(primary_key=True, sa_type=Text)
    holder: str = Field(primary_key=True, sa_type=Text)
    expires_at: datetime = Field(sa_type=UtcTime, index=True)


class PermitShareRow(TableRow, table=True):
    """The permits that one process holds of those that all share, and how many it could use."""

    __tablename__ = "limit_shares"

    key: str = Field(primary_key=True, sa_type=Text)
    holder: str = Field(primary_key=True, sa_type=Text)
    permits: int
    demand: int
    since: datetime = Field(sa_type=UtcTime)
    expires_at: datetime = Field(sa_type=UtcTime, index=True)


@dataclass(frozen=True, slots=True)
class PermitSharingRules:
    """How processes share permits: how many there are, how long a turn lasts, and how long an unrenewed share lives."""

    limit: int
    turn: timedelta
    ttl: timedelta


class DatabaseLimiter:
    """Limit rates, slots and shares over all processes that use the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_all_or_none(self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]) -> list[LimitDecision]:
        """Meet all demands or none; return their verdicts in the same order.

        A holder that has all its slots already repeats a request: that spends nothing. A slot that it has is not
        renewed: the request that took it must be able to return it, even if a repetition hangs.
        """
        keys = [rate.bucket for rate in rates] + [slot.key for slot in slots]
        async with self._begin_with_locked_keys(keys) as (session, now):
            spent = await _load_spent_amounts(session, [rate.bucket for rate in rates], now)
            held = await _load_held_slots(session, [slot.key for slot in slots], now)
            had = [slot.is_held(held[slot.key]) for slot in slots]
            again = bool(slots) and all(had)
            fit = [again or rate.fits(spent[rate.bucket]) for rate in rates]
            free = [slot.fits(held[slot.key]) for slot in slots]
            is_met = all(fit) and all(free)
            if is_met:
                new = [slot for slot, was_held in zip(slots, had, strict=True) if not was_held]
                await _save_slot_leases(session, new, now)
                if not again:
                    await _save_spending(session, rates, now)
                    _add_requested_amounts_to_spent(spent, rates, now)
                _add_requested_slots_to_held(held, new, now)
        return [
            rate.build_decision(now, spent[rate.bucket], allowed=fits) for rate, fits in zip(rates, fit, strict=True)
        ] + [
            replace(
                slot.build_decision(now, held[slot.key], allowed=fits),
                newly_held_until=slot.compute_expiry(now) if is_met and not was_held else None,
            )
            for slot, fits, was_held in zip(slots, free, had, strict=True)
        ]

    async def decide_without_taking(
        self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]
    ) -> list[LimitDecision]:
        """Return the verdicts that demands would get now; takes nothing and waits for no lock."""
        async with self._database.session() as session:
            now = (await session.exec(select(func.clock_timestamp()))).one()
            spent = await _load_spent_amounts(session, [rate.bucket for rate in rates], now)
            held = await _load_held_slots(session, [slot.key for slot in slots], now)
        return [
            *(rate.build_decision(now, spent[rate.bucket], allowed=rate.fits(spent[rate.bucket])) for rate in rates),
            *(slot.build_decision(now, held[slot.key], allowed=slot.fits(held[slot.key])) for slot in slots),
        ]

    async def take_slots_ignoring_limits(self, slots: Sequence[SlotDemand]) -> None:
        """Write slots as held whatever their limits, because their holder is at work already."""
        async with self._begin_with_locked_keys([slot.key for slot in slots]) as (session, now):
            await _save_slot_leases(session, slots, now)

    async def release_slots_and_spend_once(
        self, keys: Iterable[str], holder: str, spending: Sequence[UncheckedSpending] = ()
    ) -> None:
        """Return a holder's slots. If it still had one, spend the bookings in the same transaction.

        So work whose size shows only at its end is counted once, however often its end is reported.
        """
        keys = list(keys)
        statement = delete(SlotLeaseRow).where(col(SlotLeaseRow.key).in_(keys), col(SlotLeaseRow.holder) == holder)
        async with self._begin_with_locked_keys(keys) as (session, now):
            if (await session.exec(statement)).rowcount:
                await _save_spending(session, spending, now)

    async def release_slots_unless_renewed(self, keys: Iterable[str], holder: str, expires_at: datetime) -> None:
        """Return the slots that a holder took until this moment; leave those that it has taken anew since."""
        keys = list(keys)
        statement = delete(SlotLeaseRow).where(
            col(SlotLeaseRow.key).in_(keys),
            col(SlotLeaseRow.holder) == holder,
            col(SlotLeaseRow.expires_at) == expires_at,
        )
        async with self._begin_with_locked_keys(keys) as (session, _):
            await session.exec(statement)

    async def spend_and_read(self, spending: UncheckedSpending) -> tuple[int, float | None]:
        """Spend an amount, which may be 0; return all that is spent of its bucket, and when the first comes back."""
        async with self._begin_with_locked_keys([spending.bucket]) as (session, now):
            await _save_spending(session, [spending], now)
            spent = (await _load_spent_amounts(session, [spending.bucket], now))[spending.bucket]
        first = min((each.returns_at for each in spent), default=None)
        return sum(each.amount for each in spent), None if first is None else (first - now).total_seconds()

    async def read_spent_amount(self, bucket: str) -> int:
        """Return what is spent of a bucket and has not come back yet."""
        statement = select(func.coalesce(func.sum(LimitSpendingRow.amount), 0)).where(
            LimitSpendingRow.bucket == bucket, col(LimitSpendingRow.returns_at) > func.clock_timestamp()
        )
        async with self._database.session() as session:
            return int((await session.exec(statement)).one())

    async def read_seconds_until_first_return(self, bucket: str) -> float | None:
        """Return when the first of what is spent of a bucket comes back; None if nothing is spent."""
        statement = select(func.extract("epoch", func.min(LimitSpendingRow.returns_at) - func.clock_timestamp())).where(
            LimitSpendingRow.bucket == bucket, col(LimitSpendingRow.returns_at) > func.clock_timestamp()
        )
        async with self._database.session() as session:
            seconds = (await session.exec(statement)).one()
        return None if seconds is None else float(seconds)

    async def renew_share(
        self, key: str, holder: str, *, in_use: int, demand: int, rules: PermitSharingRules
    ) -> UsableAndHeldPermits:
        """Return a holder's share of the permits under a key, renewed for a while; with no demand and no use it ends.

        Args:
            in_use: Permits that the holder may have in use until it has the answer.
            demand: Permits that it could use.
        """
        async with self._begin_with_locked_keys([key]) as (session, now):
            claims = await _load_permit_claims(session, key, now)
            before = claims.pop(holder, PermitClaim(holder, 0, 0, now))
            mine = replace(before.with_permits(in_use, now), demand=demand)
            result = FairPermitAllocation(rules.limit, rules.turn, now).compute_share(mine, list(claims.values()))
            await _save_or_delete_share(session, key, mine.with_permits(result.permits, now), now + rules.ttl)
        return result

    async def delete_shares(self, holder: str) -> None:
        """Return every share of a holder."""
        async with self._database.session() as session:
            await session.exec(delete(PermitShareRow).where(col(PermitShareRow.holder) == holder))

    async def delete_expired_rows(self) -> int:
        """Delete expired rows, slots after `EXPIRED_SLOTS_KEPT`; return how many there were."""
        async with self._database.session() as session:
            return await _delete_expired_rows(session)

    @asynccontextmanager
    async def _begin_with_locked_keys(self, keys: Iterable[str]) -> AsyncIterator[tuple[Session, datetime]]:
        """Yield a transaction that locks these keys against all others, and the database's time in it."""
        async with self._database.session() as session:
            locks, held_up = [_compute_lock_number(key) for key in set(keys)], f"{HELD_UP_SECONDS * 1000:.0f}"
            locked = await session.execute(_LOCK, {"locks": locks, "held_up": held_up})
            yield session, max(row.now for row in locked)


async def spend_in_transaction(connection: asyncpg.Connection[asyncpg.Record], spending: UncheckedSpending) -> None:
    """Spend an amount, which may be negative, if and when the transaction of the driver's connection commits.

    It takes no lock of the bucket, which would last until then: a decision that is made meanwhile does not see it.
    """
    now = await connection.fetchval("SELECT clock_timestamp()")
    returns_at = compute_time_when_spent_amount_returns(now, spending.window_seconds)
    await connection.execute(_ADD_SPENDING, spending.bucket, returns_at, spending.amount)


async def _load_spent_amounts(
    session: Session, buckets: Sequence[str], now: datetime
) -> defaultdict[str, list[SpentAmount]]:
    found: defaultdict[str, list[SpentAmount]] = defaultdict(list)
    if buckets:
        query = select(LimitSpendingRow).where(
            col(LimitSpendingRow.bucket).in_(buckets), col(LimitSpendingRow.returns_at) > now
        )
        for row in await session.exec(query):
            found[row.bucket].append(SpentAmount(row.amount, row.returns_at))
    return found


async def _load_held_slots(session: Session, keys: Sequence[str], now: datetime) -> defaultdict[str, list[HeldSlot]]:
    found: defaultdict[str, list[HeldSlot]] = defaultdict(list)
    if keys:
        for row in await session.exec(
            select(SlotLeaseRow).where(col(SlotLeaseRow.key).in_(keys), col(SlotLeaseRow.expires_at) > now)
        ):
            found[row.key].append(HeldSlot(row.holder, row.expires_at))
    return found


async def _load_permit_claims(session: Session, key: str, now: datetime) -> dict[str, PermitClaim]:
    rows = await session.exec(
        select(PermitShareRow).where(PermitShareRow.key == key, col(PermitShareRow.expires_at) > now)
    )
    return {row.holder: PermitClaim(row.holder, row.permits, row.demand, row.since) for row in rows}


def _add_requested_amounts_to_spent(
    spent: defaultdict[str, list[SpentAmount]], rates: Sequence[RateDemand], now: datetime
) -> None:
    for rate in rates:
        if rate.amount:
            spent[rate.bucket].append(
                SpentAmount(rate.amount, compute_time_when_spent_amount_returns(now, rate.window_seconds))
            )


def _add_requested_slots_to_held(
    held: defaultdict[str, list[HeldSlot]], slots: Sequence[SlotDemand], now: datetime
) -> None:
    for slot in slots:
        others = [each for each in held[slot.key] if each.holder != slot.holder]
        held[slot.key] = [*others, HeldSlot(slot.holder, slot.compute_expiry(now))]


def _compute_lock_number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(f"limit {key}".encode()).digest()[:8], signed=True)


async def _save_spending(session: Session, rates: Sequence[RateDemand | UncheckedSpending], now: datetime) -> None:
    """Add amounts to what their buckets have spent."""
    for rate in rates:
        if rate.amount:
            statement = insert(LimitSpendingRow).values(
                bucket=rate.bucket,
                returns_at=compute_time_when_spent_amount_returns(now, rate.window_seconds),
                amount=rate.amount,
            )
            amount = col(LimitSpendingRow.amount) + statement.excluded.amount
            await session.exec(
                statement.on_conflict_do_update(index_elements=["bucket", "returns_at"], set_={"amount": amount})
            )


async def _save_slot_leases(session: Session, slots: Sequence[SlotDemand], now: datetime) -> None:
    """Write slots as held from now on."""
    for slot in slots:
        statement = insert(SlotLeaseRow).values(key=slot.key, holder=slot.holder, expires_at=slot.compute_expiry(now))
        renewed = {"expires_at": statement.excluded.expires_at}
        await session.exec(statement.on_conflict_do_update(index_elements=["key", "holder"], set_=renewed))


async def _save_or_delete_share(session: Session, key: str, claim: PermitClaim, expires_at: datetime) -> None:
    """Write a share, or delete it when it is empty and nothing waits for it."""
    if not claim.permits and not claim.demand:
        await session.exec(
            delete(PermitShareRow).where(col(PermitShareRow.key) == key, col(PermitShareRow.holder) == claim.holder)
        )
        return
    values = {
        "permits": claim.permits,
        "demand": claim.demand,
        "since": claim.since,
        "expires_at": expires_at,
    }
    statement = insert(PermitShareRow).values(key=key, holder=claim.holder, **values)
    await session.exec(statement.on_conflict_do_update(index_elements=["key", "holder"], set_=values))


async def _delete_expired_rows(session: Session) -> int:
    """Delete expired rows. Locked rows are left to the next call: to wait for them could end in a deadlock."""
    return sum([(await session.exec(statement)).rowcount for statement in _build_delete_expired_statements()])


def _build_delete_expired_statements() -> list[Delete]:
    now = func.clock_timestamp()
    spending = select(LimitSpendingRow.bucket, LimitSpendingRow.returns_at).where(
        col(LimitSpendingRow.returns_at) < now
    )
    leases = select(SlotLeaseRow.key, SlotLeaseRow.holder).where(
        col(SlotLeaseRow.expires_at) < now - EXPIRED_SLOTS_KEPT
    )
    shares = select(PermitShareRow.key, PermitShareRow.holder).where(col(PermitShareRow.expires_at) < now)
    return [
        delete(LimitSpendingRow).where(
            tuple_(col(LimitSpendingRow.bucket), col(LimitSpendingRow.returns_at)).in_(
                spending.with_for_update(skip_locked=True)
            )
        ),
        delete(SlotLeaseRow).where(
            tuple_(col(SlotLeaseRow.key), col(SlotLeaseRow.holder)).in_(leases.with_for_update(skip_locked=True))
        ),
        delete(PermitShareRow).where(
            tuple_(col(PermitShareRow.key), col(PermitShareRow.holder)).in_(shares.with_for_update(skip_locked=True))
        ),
    ]
