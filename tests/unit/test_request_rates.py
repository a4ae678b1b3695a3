"""The meter of rates: how much a minute takes, what comes back, and what one request costs."""

from __future__ import annotations

import random
import time

import pytest

from api.http.rates import KEYS_MAX, RateMeter, RequestRates
from api.http.routes import Caller
from domain.faults import QuotaExhausted
from domain.quotas import QuotaLimits


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("per_minute", [1, 7, 60, 60_000])
def test_a_minute_takes_its_amount_at_once(per_minute: int) -> None:
    """Not one more, until the rate brings it."""
    clock = Clock()
    meter = RateMeter(clock)
    assert [meter.count_unless_too_early("a", per_minute) for _ in range(per_minute)] == [0.0] * per_minute
    wait = meter.count_unless_too_early("a", per_minute)
    assert 0 < wait <= 60 / per_minute
    used, seconds = meter.read_used_amount_and_reset_seconds("a", per_minute)
    assert used == per_minute
    assert seconds == pytest.approx(60)
    clock.now += wait
    assert meter.count_unless_too_early("a", per_minute) == 0.0
    assert meter.count_unless_too_early("a", per_minute) > 0
    assert meter.count_unless_too_early("b", per_minute) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_no_minute_takes_more_than_twice_its_amount(seed: int) -> None:
    """Whatever the times of the requests; and in the long run not more than the rate."""
    draw = random.Random(seed)
    clock, per_minute = Clock(), draw.randint(1, 90)
    meter, taken = RateMeter(clock), list[float]()
    began = clock.now
    while clock.now < began + 1_200:
        clock.now += draw.choice([0.0, 0.01, 0.5, draw.random() * 40])
        if not meter.count_unless_too_early("a", per_minute):
            taken.append(clock.now)
    for start in taken:
        assert sum(start <= at < start + 60 for at in taken) <= 2 * per_minute
    assert len(taken) <= per_minute * ((clock.now - began) / 60 + 1) + 1


def test_what_is_refused_is_not_counted() -> None:
    """Who asks too often gets in as soon as who waits."""
    clock = Clock()
    meter = RateMeter(clock)
    for _ in range(60 + 500):
        meter.count_unless_too_early("a", 60)
    clock.now += 1
    assert meter.count_unless_too_early("a", 60) == 0.0


def test_the_meter_forgets_the_idle_first() -> None:
    """Its memory is bounded, and a busy key is still counted when many others come."""
    clock = Clock()
    meter = RateMeter(clock)
    for number in range(KEYS_MAX - 1):
        meter.count_unless_too_early(str(number), 60_000)
    clock.now += 1
    while not meter.count_unless_too_early("busy", 60):
        pass
    for number in range(KEYS_MAX // 2):
        meter.count_unless_too_early(f"new {number}", 60)
    assert meter.count_unless_too_early("busy", 60) > 0
    assert len(meter._due) <= KEYS_MAX


def test_the_administrator_has_no_quota() -> None:
    """A project has one."""
    own, limits = RequestRates(Clock()), QuotaLimits(requests_per_minute=1)
    project = Caller("prj_1", "key", quotas=limits)
    own.count_request_within_quota(project)
    with pytest.raises(QuotaExhausted) as refusal:
        own.count_request_within_quota(project)
    assert (refusal.value.retry_after_seconds, refusal.value.violated) == (60, ["requests_per_minute"])
    for other in (Caller(), Caller(is_admin=True), Caller("prj_1", is_admin=True, quotas=limits)):
        for _ in range(10):
            own.count_request_within_quota(other)


def test_a_request_costs_little() -> None:
    """A few microseconds: creates of tasks come by the thousand a second."""
    own, caller = RequestRates(), Caller("prj_1", "key", quotas=QuotaLimits(requests_per_minute=10**9))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(10_000):
            own.count_request_within_quota(caller)
        best = min(best, (time.perf_counter() - began) / 10_000)
    assert best < 20e-6, f"{best * 1e6:.2f} µs"
