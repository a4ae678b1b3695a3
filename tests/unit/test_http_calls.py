"""Calls to outside services: limits, retries, the circuit breaker, tokens, and what Retry-After asks for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from clients.http import (
    CallConcurrencyAndRateLimiter,
    CircuitBreaker,
    HttpTransport,
    RetryingServiceCaller,
    RetryPolicy,
    ServiceFailure,
    SharedRenewingToken,
    TransportError,
    TransportFailureKind,
    calls,
    parse_retry_after,
)
from tests.support.http_peer import Script, answer, drips, running_peer, says

NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)
QUICK = RetryPolicy((0.0, 0.0))


def fail(*failures: ServiceFailure | None) -> tuple[list[int], Callable[[], Awaitable[str]]]:
    """Attempts that end in these failures, None for a success, and the count of attempts."""
    made: list[int] = []

    async def attempt() -> str:
        made.append(len(made))
        failure = failures[min(len(made) - 1, len(failures) - 1)]
        if failure is not None:
            raise failure
        return "done"

    return made, attempt


def transient(**changes: bool | float) -> ServiceFailure:
    return ServiceFailure("busy", is_transient=True, **changes)  # type: ignore[arg-type]


def make_caller(*, retry: RetryPolicy = QUICK, breaker: CircuitBreaker | None = None) -> RetryingServiceCaller:
    return RetryingServiceCaller(
        "test", retry=retry, breaker=breaker, build_open_failure=lambda breaker: ServiceFailure("the breaker is open")
    )


async def test_so_many_calls_at_a_time() -> None:
    """Who comes later waits for a place, and one that fails gives its place back."""
    limiter = CallConcurrencyAndRateLimiter(concurrency=3, calls_per_second=0)
    under_way = most = done = 0

    async def call(number: int) -> None:
        nonlocal under_way, most, done
        async with limiter.wait_for_turn():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            if number % 2:
                raise ConnectionError
        done += 1

    await asyncio.gather(*(call(number) for number in range(20)), return_exceptions=True)

    assert (most, done) == (3, 10)


async def test_so_many_calls_a_second() -> None:
    """Evenly: there is no burst at first."""
    limiter = CallConcurrencyAndRateLimiter(concurrency=100, calls_per_second=50)
    begun: list[float] = []

    async def call() -> None:
        async with limiter.wait_for_turn():
            begun.append(time.monotonic())

    began = time.monotonic()
    await asyncio.gather(*(call() for _ in range(11)))

    assert begun[-1] - began >= 0.19


async def test_a_cancelled_call_leaves_its_moment_to_the_next() -> None:
    """Nine that gave up do not hold up the tenth."""
    limiter = CallConcurrencyAndRateLimiter(concurrency=10, calls_per_second=1)

    async def call() -> None:
        async with limiter.wait_for_turn():
            pass

    await call()
    waiting = [asyncio.create_task(call()) for _ in range(9)]
    await asyncio.sleep(0.05)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    began = time.monotonic()
    await call()

    assert time.monotonic() - began < 8


async def test_a_transient_failure_is_repeated_and_a_final_one_is_not() -> None:
    """Two retries are three attempts; a call that must not happen twice is made once, whatever its failure."""
    made, attempt = fail(transient(), transient(), None)
    assert await make_caller().call_with_retries("call", attempt) == "done"
    assert len(made) == 3

    cases = [(ServiceFailure("no"), True, 1), (transient(), True, 3), (transient(), False, 1)]
    for failure, repeats, count in cases:
        made, attempt = fail(failure)
        with pytest.raises(ServiceFailure):
            await make_caller().call_with_retries("call", attempt, repeats=repeats)
        assert len(made) == count


async def test_a_retry_waits_as_long_as_the_service_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least its own pause, at most the longest; beyond the caller's patience the failure is raised at once."""
    slept: list[float] = []
    own_task, real_sleep = asyncio.current_task(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        # The loop is the session's: what other tests left running in it sleeps, too.
        if asyncio.current_task() is own_task:
            slept.append(seconds)
        else:
            await real_sleep(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    policy = RetryPolicy.exponential(3, 0.5, max_requested_pause_seconds=100)
    _, attempt = fail(transient(retry_after_seconds=7), transient(), transient(retry_after_seconds=99), None)
    await make_caller(retry=policy).call_with_retries("call", attempt)
    assert slept == [7, 1.0, calls.PAUSE_MAX_SECONDS]

    made, attempt = fail(transient(retry_after_seconds=101))
    with pytest.raises(ServiceFailure):
        await make_caller(retry=policy).call_with_retries("call", attempt)
    assert len(made) == 1


async def test_a_failure_says_whether_every_attempt_was_answered() -> None:
    """One that was not may still be under way at the service."""
    for first, answered in ((True, True), (False, False)):
        _, attempt = fail(transient(is_answered=first), transient(is_answered=True))
        with pytest.raises(ServiceFailure) as failure:
            await make_caller(retry=RetryPolicy((0.0,))).call_with_retries("call", attempt)
        assert failure.value.is_answered is answered


async def test_an_open_breaker_sends_nothing_but_probes() -> None:
    """The failure that opened it is raised rather than the breaker's; a probe that succeeds closes it."""
    caller = make_caller(breaker=CircuitBreaker(2, 60))
    made, attempt = fail(transient())
    with pytest.raises(ServiceFailure, match="busy"):
        await caller.call_with_retries("call", attempt)
    assert len(made) == 2

    made, attempt = fail(None)
    with pytest.raises(ServiceFailure, match="breaker is open") as refusal:
        await caller.call_with_retries("call", attempt)
    assert made == []
    assert refusal.value.is_circuit_open
    assert await caller.call_with_retries("call", attempt, is_probe=True) == "done"
    assert await caller.call_with_retries("call", attempt) == "done"


async def test_attempts_are_timed_and_an_open_breaker_is_shown() -> None:
    """Until a call succeeds."""
    caller = RetryingServiceCaller("timed", retry=RetryPolicy(), breaker=CircuitBreaker(1, 60), circuit="timed_a")
    _, failing = fail(transient())
    _, succeeding = fail(None)
    with pytest.raises(ServiceFailure):
        await caller.call_with_retries("read", failing)
    opened = REGISTRY.get_sample_value("haulage_service_circuit_open", {"service": "timed_a"})
    await caller.call_with_retries("read", succeeding, is_probe=True)

    assert opened == 1
    assert REGISTRY.get_sample_value("haulage_service_circuit_open", {"service": "timed_a"}) == 0
    assert REGISTRY.get_sample_value("haulage_service_call_seconds_count", {"service": "timed", "call": "read"}) == 2


async def test_an_open_breaker_keeps_the_cause() -> None:
    """A status or an alarm that shows its refusal must still say what the service answered."""
    breaker = CircuitBreaker(2, 10)
    breaker.count_failure_and_open_at_limit("It answered 503.")
    breaker.count_failure_and_open_at_limit("The clock has stopped.")
    sentence = "failed 2 times in a row and is not called for 10 s. The last failure: The clock has stopped."
    assert breaker.describe_open_state() == sentence


async def test_a_failure_of_our_own_limits_does_not_open_the_breaker() -> None:
    """Nothing was sent, so that it says nothing of the service."""
    local = transient()
    local.is_local = True
    caller = make_caller(breaker=CircuitBreaker(1, 60))
    _, attempt = fail(local)
    with pytest.raises(ServiceFailure, match="busy"):
        await caller.call_with_retries("call", attempt)
    _, attempt = fail(None)
    assert await caller.call_with_retries("call", attempt) == "done"


async def test_a_refused_token_is_fetched_again_once_for_all() -> None:
    """Callers that come together share the fetch."""
    fetched: list[str] = []

    async def fetch() -> tuple[str, float]:
        await asyncio.sleep(0)
        fetched.append(f"token-{len(fetched)}")
        return fetched[-1], 3_600

    token = SharedRenewingToken()
    assert await asyncio.gather(*(token.get_or_fetch(None, fetch) for _ in range(5))) == ["token-0"] * 5
    assert await asyncio.gather(*(token.get_or_fetch("token-0", fetch) for _ in range(5))) == ["token-1"] * 5


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (says(), TransportFailureKind.CLOSED_BEFORE_BODY),
        (says(b"garbage\r\n\r\n"), TransportFailureKind.INVALID),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"), TransportFailureKind.CUT_OFF_IN_BODY),
        (says(answer(b"x" * 2_000)), TransportFailureKind.TOO_LARGE),
        (says(answer(b"x", "Content-Encoding: br")), TransportFailureKind.ENCODING),
        (drips(b"HTTP/1.1 200 OK\r\n\r\n"), TransportFailureKind.TIMEOUT),
    ],
    ids=lambda value: str(value) if isinstance(value, TransportFailureKind) else "",
)
async def test_a_transport_names_each_fault(script: Script, fault: TransportFailureKind) -> None:
    """All of them after the request was sent, so that it may have been carried out."""
    patience = 0.5 if fault is TransportFailureKind.TIMEOUT else 30
    async with running_peer(script) as peer, HttpTransport(connect_timeout_seconds=1) as transport:
        with pytest.raises(TransportError) as error:
            await transport.request("POST", peer.url, body=b"{}", max_bytes=1_000, timeout_seconds=patience)
    assert (error.value.fault, error.value.is_surely_unsent) == (fault, False)


async def test_a_request_that_met_no_server_is_unsent() -> None:
    """It was surely not carried out."""
    async with HttpTransport(connect_timeout_seconds=1) as transport:
        with pytest.raises(TransportError) as error:
            await transport.request("GET", "http://127.0.0.1:9/", max_bytes=1, timeout_seconds=5)
    assert (error.value.fault, error.value.is_surely_unsent) == (TransportFailureKind.NO_CONNECTION, True)


async def test_a_trial_that_was_not_sent_is_left_to_the_next_call() -> None:
    """A request that got no permit of its rate says nothing of the service."""
    clock = [0.0]
    breaker = CircuitBreaker(1, 10, lambda: clock[0])
    breaker.count_failure_and_open_at_limit("busy")
    clock[0] = 10
    unsent = ServiceFailure("no permit")
    unsent.is_local = True
    caller = make_caller(breaker=breaker)
    with pytest.raises(ServiceFailure, match="no permit"):
        await caller.call_with_retries("call", fail(unsent)[1])

    assert await caller.call_with_retries("call", fail(None)[1]) == "done"


async def test_a_trial_that_another_error_ends_is_left_to_the_next_call() -> None:
    """A worker that finds before it sends that another one has its shard says nothing of the service."""
    clock = [0.0]
    breaker = CircuitBreaker(1, 10, lambda: clock[0])
    breaker.count_failure_and_open_at_limit("busy")
    clock[0] = 10

    async def lose_lease() -> None:
        raise LookupError("another worker has it")

    caller = make_caller(breaker=breaker)
    with pytest.raises(LookupError):
        await caller.call_with_retries("call", lose_lease)

    assert await caller.call_with_retries("call", fail(None)[1]) == "done"


async def test_a_trial_that_is_cancelled_before_it_is_sent_is_left_to_the_next_call() -> None:
    """A worker that stops before its turn comes kept all others from trying for as long as the breaker stays open."""
    clock = [0.0]
    breaker = CircuitBreaker(1, 10, lambda: clock[0])
    breaker.count_failure_and_open_at_limit("busy")
    clock[0] = 10
    caller = make_caller(breaker=breaker)

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    trial = asyncio.create_task(caller.call_with_retries("call", fail(None)[1], before_sending=wait_for_ever))
    await asyncio.sleep(0)
    trial.cancel()
    await asyncio.wait([trial])

    assert await caller.call_with_retries("call", fail(None)[1]) == "done"


async def test_a_call_without_a_trial_returns_none() -> None:
    """It began before the breaker opened; its own limit refuses it while others wait for the service to recover."""
    breaker = CircuitBreaker(1, 10)
    unsent = ServiceFailure("no permit")
    unsent.is_local = True

    async def open_meanwhile() -> None:
        breaker.count_failure_and_open_at_limit("busy")
        raise unsent

    with pytest.raises(ServiceFailure, match="no permit"):
        await make_caller(breaker=breaker).call_with_retries("call", open_meanwhile)
    assert not breaker.begin_call_if_allowed()


def test_a_breaker_tries_one_call_when_its_time_is_over() -> None:
    """If that fails, too, the time begins anew; if not, all is as before."""
    clock = [0.0]
    breaker = CircuitBreaker(2, 10, lambda: clock[0])
    breaker.count_failure_and_open_at_limit("down")
    assert breaker.begin_call_if_allowed()
    breaker.count_failure_and_open_at_limit("down")
    assert not breaker.begin_call_if_allowed()

    clock[0] = 10
    assert [breaker.begin_call_if_allowed(), breaker.begin_call_if_allowed()] == [True, False]
    breaker.count_failure_and_open_at_limit("down")
    clock[0] = 19
    assert not breaker.begin_call_if_allowed()

    clock[0] = 20
    assert breaker.begin_call_if_allowed()
    breaker.close()
    assert [breaker.begin_call_if_allowed(), breaker.begin_call_if_allowed()] == [True, True]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        (" 120 ", 120),
        ("-1", None),
        ("1.5", 1.5),
        ("٣", None),
        ("soon", None),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0),
        ("Fri, 20 Nov 2026 08:00:30", 30),
        ("Fri, 99999999999999999999 Nov 2026 08:00:30 GMT", None),
    ],
)
def test_both_forms_of_retry_after_are_read(value: str | None, seconds: float | None) -> None:
    """Seconds or a date; anything else counts for nothing."""
    assert parse_retry_after({} if value is None else {"Retry-After": value}, NOW) == seconds


@given(st.text(max_size=60))
def test_no_retry_after_breaks_anything(value: str) -> None:
    """A header of a stranger is read or ignored."""
    seconds = parse_retry_after({"Retry-After": value}, NOW)
    assert seconds is None or seconds >= 0
