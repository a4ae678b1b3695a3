"""Quotas: no window sees too much, nothing is lost, and what callers are told is true."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits import (
    WINDOW_STEPS,
    HeldSlot,
    RateDemand,
    SlotDemand,
    SpentAmount,
    compute_time_when_spent_amount_returns,
)

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)

PAUSES = st.floats(min_value=0, max_value=30, allow_nan=False)
STEPS = st.lists(st.tuples(PAUSES, st.integers(min_value=1, max_value=8)), max_size=60)
LIMITS = st.integers(min_value=8, max_value=20)
WINDOWS = st.one_of(st.floats(min_value=0.001, max_value=100), st.sampled_from([1.0, 60.0, 86_400.0]))


def live(spent: Sequence[SpentAmount], now: datetime) -> list[SpentAmount]:
    """What has not come back yet, as the limiter reads it."""
    return [each for each in spent if each.returns_at > now]


@given(STEPS, LIMITS, WINDOWS)
def test_no_window_sees_more_than_the_limit(steps: list[tuple[float, int]], limit: int, window_seconds: float) -> None:
    """Whatever is asked for, and wherever a window begins; and what fits with room to spare is never refused."""
    window = timedelta(seconds=window_seconds)
    now, spent, log = NOON, list[SpentAmount](), list[tuple[datetime, int]]()
    for pause, amount in steps:
        now += timedelta(seconds=pause * window_seconds / 20)
        rate = RateDemand("b", amount, limit, window_seconds)
        recent = sum(each for at, each in log if at > now - window)
        if rate.fits(live(spent, now)):
            assert recent + amount <= limit
            spent.append(SpentAmount(amount, compute_time_when_spent_amount_returns(now, window_seconds)))
            log.append((now, amount))
        else:
            with_grain = window * (1 + 1 / WINDOW_STEPS) + timedelta.resolution
            assert sum(each for at, each in log if at >= now - with_grain) + amount > limit


@given(STEPS, LIMITS)
def test_who_waits_as_told_is_let_in(steps: list[tuple[float, int]], limit: int) -> None:
    """A refusal names the very moment: a microsecond before it would be refused again."""
    now, spent = NOON, list[SpentAmount]()
    for pause, amount in steps:
        now += timedelta(seconds=pause)
        rate = RateDemand("b", amount, limit, 60)
        before = live(spent, now)
        if rate.fits(before):
            spent.append(SpentAmount(amount, compute_time_when_spent_amount_returns(now, 60)))
            continue
        wait = timedelta(seconds=rate.build_decision(now, before, allowed=False).reset_seconds)
        assert rate.fits(live(spent, now + wait))
        assert not rate.fits(live(spent, now + wait - timedelta.resolution))


@given(STEPS, LIMITS)
def test_what_is_left_stays_as_told_for_as_long_as_told(steps: list[tuple[float, int]], limit: int) -> None:
    """An admitted caller is told what is left, and until when nothing comes back."""
    now, spent = NOON, list[SpentAmount]()
    for pause, amount in steps:
        now += timedelta(seconds=pause)
        rate = RateDemand("b", amount, limit, 60)
        if not rate.fits(live(spent, now)):
            continue
        spent.append(SpentAmount(amount, compute_time_when_spent_amount_returns(now, 60)))
        verdict = rate.build_decision(now, live(spent, now), allowed=True)
        assert verdict.remaining == limit - sum(each.amount for each in live(spent, now))
        until = now + timedelta(seconds=verdict.reset_seconds)
        assert live(spent, until - timedelta.resolution) == live(spent, now)
        assert live(spent, until) != live(spent, now)


@given(st.datetimes(timezones=st.just(UTC)), WINDOWS)
def test_what_is_spent_comes_back_on_time(now: datetime, window_seconds: float) -> None:
    """Never early, and late by a grain at most; in any year."""
    if now.year > 9_000:
        return
    late = compute_time_when_spent_amount_returns(now, window_seconds) - now - timedelta(seconds=window_seconds)
    assert timedelta(0) <= late <= max(timedelta(seconds=window_seconds) / WINDOW_STEPS, timedelta.resolution)


@given(st.integers(min_value=1, max_value=4), st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60))
def test_slots_are_neither_lost_nor_doubled(limit: int, steps: list[tuple[bool, int]]) -> None:
    """Holders come and go: as many as there are slots hold one, and a free one is always given."""
    holders: set[str] = set()
    for comes, number in steps:
        holder = f"h{number}"
        if not comes:
            holders.discard(holder)
            continue
        held = [HeldSlot(each, NOON) for each in holders]
        slot = SlotDemand("k", holder, limit, 60)
        assert slot.fits(held) == (holder in holders or len(holders) < limit)
        if slot.fits(held):
            holders.add(holder)
        assert len(holders) <= limit


def test_an_unused_window_is_told_whole() -> None:
    """All is there, and stays as it is for a window."""
    verdict = RateDemand("b", 0, 5, 60).build_decision(NOON, [], allowed=True)
    assert (verdict.allowed, verdict.remaining, verdict.reset_seconds) == (True, 5, 60)


def test_a_lowered_limit_is_never_negative() -> None:
    """Who spent more than a new limit waits until enough came back."""
    spent = [SpentAmount(4, NOON + timedelta(seconds=10)), SpentAmount(4, NOON + timedelta(seconds=50))]
    verdict = RateDemand("b", 1, 2, 60).build_decision(NOON, spent, allowed=False)
    assert (verdict.remaining, verdict.reset_seconds) == (0, 50)


@pytest.mark.parametrize(("amount", "limit"), [(11, 10), (-1, 10), (0, 0)])
def test_a_demand_that_could_never_be_met_is_an_error(amount: int, limit: int) -> None:
    """It is a mistake of ours, not a caller's, so it is no verdict."""
    with pytest.raises(ValueError, match="never"):
        RateDemand("b", amount, limit, 60)
