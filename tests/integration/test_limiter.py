"""Windows, slots and bookings on a real PostgreSQL, asked for by many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from sqlalchemy import text

from domain.limits import LimitDecision, RateDemand, SlotDemand, UncheckedSpending
from infra.database import Database
from infra.limits import DatabaseLimiter
from infra.limits import limiter as counting
from infra.limits.limiter import PermitSharingRules
from tests.support.pace import measure_pace

DAY = 86_400.0


async def spend(
    limiter: DatabaseLimiter, bucket: str, amount: int, *, capacity: int, window_seconds: float
) -> LimitDecision:
    """Spend an amount if no window, wherever it begins, would exceed the capacity."""
    [decision] = await limiter.take_all_or_none([RateDemand(bucket, amount, capacity, window_seconds)], [])
    return decision


async def take_slot(
    limiter: DatabaseLimiter, key: str, holder: str, *, limit: int, ttl_seconds: float
) -> LimitDecision:
    """Take a slot if one is free, unless the holder has one."""
    [decision] = await limiter.take_all_or_none([], [SlotDemand(key, holder, limit, ttl_seconds)])
    return decision


@pytest.fixture
def limiter(database: Database) -> DatabaseLimiter:
    """One limiter."""
    return DatabaseLimiter(database)


@pytest.fixture
async def limiters(database: Database) -> AsyncIterator[Sequence[DatabaseLimiter]]:
    """Limiters with connections of their own, as several processes have them."""
    async with AsyncExitStack() as stack:
        databases = [Database(database.settings) for _ in range(4)]
        for each in databases:
            stack.push_async_callback(each.close)
        yield [DatabaseLimiter(each) for each in databases]


async def test_a_window_takes_its_capacity_and_no_more(limiter: DatabaseLimiter) -> None:
    """Each verdict has what is left; a refused one spends nothing."""
    verdicts = [await spend(limiter, "b", amount, capacity=10, window_seconds=DAY) for amount in (4, 7, 6, 1, 0)]

    assert [(verdict.allowed, verdict.remaining) for verdict in verdicts] == [
        (True, 6),
        (False, 6),
        (True, 0),
        (False, 0),
        (False, 0),
    ]
    assert await limiter.read_spent_amount("b") == 10
    assert await limiter.read_spent_amount("another") == 0


async def test_those_who_spend_at_once_never_spend_too_much(limiters: Sequence[DatabaseLimiter]) -> None:
    """Two hundred demands over many connections: exactly the capacity is met."""
    demands = [spend(limiters[n % 4], "b", 1, capacity=37, window_seconds=DAY) for n in range(200)]
    verdicts = await asyncio.gather(*demands)

    assert sum(verdict.allowed for verdict in verdicts) == 37
    assert sorted(verdict.remaining for verdict in verdicts if verdict.allowed) == list(range(37))
    assert await limiters[0].read_spent_amount("b") == 37


async def test_no_window_sees_more_than_the_capacity(limiters: Sequence[DatabaseLimiter]) -> None:
    """Who asks without pause gets the capacity once a window, and gets it all again afterwards."""
    capacity, window = 5, 0.4
    ended: list[float] = []
    began: list[float] = []

    async def insist(limiter: DatabaseLimiter) -> None:
        while len(ended) < 4 * capacity:
            asked = time.monotonic()
            if (await spend(limiter, "b", 1, capacity=capacity, window_seconds=window)).allowed:
                began.append(asked)
                ended.append(time.monotonic())

    await asyncio.gather(*map(insist, limiters))

    # Demand n + capacity cannot have been met within a window of demand n: however late the one, and early the other.
    met = list(zip(sorted(began), sorted(ended), strict=True))
    assert all(later[1] - first[0] >= window for first, later in zip(met, met[capacity:], strict=False))
    assert len(met) >= 4 * capacity


async def test_a_refusal_says_when_to_come_back(limiter: DatabaseLimiter) -> None:
    """Who waits that long is let in, and who comes a little earlier is not."""
    window = 1.5 * measure_pace()
    await spend(limiter, "b", 3, capacity=3, window_seconds=window)
    asked, refused = time.monotonic(), await spend(limiter, "b", 1, capacity=3, window_seconds=window)
    assert not refused.allowed
    assert 0 < refused.reset_seconds <= window * (1 + 1 / 60)

    earliest, latest = asked + refused.reset_seconds, time.monotonic() + refused.reset_seconds
    asked = time.monotonic()
    while not (verdict := await spend(limiter, "b", 1, capacity=3, window_seconds=window)).allowed:
        assert asked < latest + 0.2
        asked = time.monotonic()
    assert time.monotonic() >= earliest - 0.05
    assert verdict.remaining == 2


async def test_slots_go_to_as_many_holders_as_there_are(limiters: Sequence[DatabaseLimiter]) -> None:
    """A hundred want ten slots at once; a released one is free again, and none is ever lost."""
    leases = [take_slot(limiters[n % 4], "k", f"h{n}", limit=10, ttl_seconds=DAY) for n in range(100)]
    verdicts = await asyncio.gather(*leases)
    holders = [f"h{n}" for n, verdict in enumerate(verdicts) if verdict.allowed]
    assert len(holders) == 10

    for _ in range(3):
        await asyncio.gather(*(limiters[0].release_slots_and_spend_once(["k"], holder) for holder in holders))
        again = [await take_slot(limiters[1], "k", f"{holder}'", limit=10, ttl_seconds=DAY) for holder in holders]
        assert [verdict.remaining for verdict in again] == list(range(9, -1, -1))
        holders = [f"{holder}'" for holder in holders]
    assert not (await take_slot(limiters[2], "k", "late", limit=10, ttl_seconds=DAY)).allowed


async def test_a_holder_that_asks_again_keeps_its_one_slot(limiter: DatabaseLimiter) -> None:
    """A request that is repeated takes no second slot, also when all are taken."""
    first = await take_slot(limiter, "k", "a", limit=2, ttl_seconds=DAY)
    again = await take_slot(limiter, "k", "a", limit=2, ttl_seconds=DAY)
    await take_slot(limiter, "k", "b", limit=2, ttl_seconds=DAY)
    full = await take_slot(limiter, "k", "a", limit=2, ttl_seconds=DAY)

    assert [(verdict.allowed, verdict.remaining) for verdict in (first, again, full)] == [
        (True, 1),
        (True, 1),
        (True, 0),
    ]


async def test_a_slot_expires_with_its_holder(limiter: DatabaseLimiter) -> None:
    """What a dead holder had is not released; it is free when its time is over, and the refusal said when."""
    await take_slot(limiter, "k", "dead", limit=1, ttl_seconds=1.5 * measure_pace())
    asked, refused = time.monotonic(), await take_slot(limiter, "k", "next", limit=1, ttl_seconds=DAY)
    earliest, latest = asked + refused.reset_seconds, time.monotonic() + refused.reset_seconds
    assert not refused.allowed
    asked = time.monotonic()
    while not (await take_slot(limiter, "k", "next", limit=1, ttl_seconds=DAY)).allowed:
        assert asked < latest + 0.2
        asked = time.monotonic()
    assert time.monotonic() >= earliest - 0.05


async def test_demands_are_met_together_or_not_at_all(limiter: DatabaseLimiter) -> None:
    """One that cannot be met leaves the others untouched, and the verdicts name it."""

    async def take(holder: str) -> list[LimitDecision]:
        return await limiter.take_all_or_none([RateDemand("b", 1, 10, DAY)], [SlotDemand("k", holder, 1, DAY)])

    assert [verdict.allowed for verdict in await take("a")] == [True, True]
    assert [(verdict.allowed, verdict.remaining) for verdict in await take("b")] == [(True, 9), (False, 0)]
    assert await limiter.read_spent_amount("b") == 1


async def test_the_same_demand_twice_spends_once(limiter: DatabaseLimiter) -> None:
    """Who holds all its slots is a repeated request: it costs nothing, even when nothing is left."""
    demand = [RateDemand("b", 1, 1, DAY)], [SlotDemand("k", "a", 1, DAY), SlotDemand("k2", "a", 1, DAY)]
    verdicts = [await limiter.take_all_or_none(*demand) for _ in range(2)]

    assert [[verdict.allowed for verdict in each] for each in verdicts] == [[True] * 3] * 2
    assert await limiter.read_spent_amount("b") == 1


async def test_what_crosses_does_not_deadlock(limiters: Sequence[DatabaseLimiter]) -> None:
    """Demands name the same keys in opposite orders."""
    slots = [SlotDemand("k1", "{}", 1_000, DAY), SlotDemand("k2", "{}", 1_000, DAY)]

    async def take(n: int) -> list[LimitDecision]:
        mine = [SlotDemand(slot.key, f"h{n}", slot.limit, slot.ttl_seconds) for slot in slots[:: 1 if n % 2 else -1]]
        return await limiters[n % 4].take_all_or_none([RateDemand("b", 1, 1_000, DAY)], mine)

    verdicts = await asyncio.gather(*map(take, range(60)))
    assert all(verdict.allowed for each in verdicts for verdict in each)
    assert await limiters[0].read_spent_amount("b") == 60


async def test_a_booking_is_made_once_with_the_release(limiter: DatabaseLimiter) -> None:
    """However often the end of some work is reported; also past the capacity, as it has happened."""
    booking = [UncheckedSpending("bytes", 30, DAY)]
    await take_slot(limiter, "k", "a", limit=1, ttl_seconds=DAY)
    await asyncio.gather(*(limiter.release_slots_and_spend_once(["k", "other"], "a", booking) for _ in range(3)))

    assert await limiter.read_spent_amount("bytes") == 30
    asked = await spend(limiter, "bytes", 0, capacity=20, window_seconds=DAY)
    assert (asked.allowed, asked.remaining) == (False, 0)


async def age_slots(database: Database, age: timedelta) -> None:
    """Put the end of all slots back."""
    async with database.connection() as connection:
        await connection.execute("UPDATE limit_leases SET expires_at = expires_at - $1::interval", age)


async def test_an_end_that_is_reported_late_is_booked(database: Database, limiter: DatabaseLimiter) -> None:
    """No worker was there for hours after the slot's time: what was used is counted, once."""
    booking = [UncheckedSpending("bytes", 30, DAY)]
    await take_slot(limiter, "k", "a", limit=1, ttl_seconds=600)
    await age_slots(database, timedelta(hours=6))
    await limiter.delete_expired_rows()
    assert (await take_slot(limiter, "k", "b", limit=1, ttl_seconds=600)).allowed
    for _ in range(2):
        await limiter.release_slots_and_spend_once(["k"], "a", booking)

    assert await limiter.read_spent_amount("bytes") == 30


async def test_a_process_that_stops_inside_does_not_hold_up_the_others(
    database: Database, limiter: DatabaseLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen process keeps the lock of a key for two seconds at most; then the others go on."""
    monkeypatch.setattr(counting, "HELD_UP_SECONDS", 2.0)
    stuck = DatabaseLimiter(database)
    async with stuck._begin_with_locked_keys(["b"]) as (session, _):
        started = time.monotonic()
        assert (await spend(limiter, "b", 1, capacity=1, window_seconds=DAY)).allowed
        assert time.monotonic() - started < 30
        await session.invalidate()


async def test_a_sweep_deletes_what_counts_no_more(database: Database, limiter: DatabaseLimiter) -> None:
    """What is over goes; what still counts stays."""
    for name, seconds in (("old", 0.01), ("new", DAY)):
        await spend(limiter, name, 1, capacity=1, window_seconds=seconds)
        await take_slot(limiter, name, "a", limit=1, ttl_seconds=seconds)
        ttl = timedelta(seconds=seconds)
        await limiter.renew_share(name, "a", in_use=0, demand=1, rules=PermitSharingRules(limit=1, turn=ttl, ttl=ttl))
    await age_slots(database, counting.EXPIRED_SLOTS_KEPT)
    await take_slot(limiter, "new", "a", limit=1, ttl_seconds=DAY)
    swept = 0
    while swept < 3:
        swept += await limiter.delete_expired_rows()

    assert swept == 3
    async with database.session() as session:
        for table in ("limit_spending", "limit_leases", "limit_shares"):
            assert (await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() == 1  # noqa: S608
    assert await limiter.read_spent_amount("new") == 1
