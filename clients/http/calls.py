"""Calls to an outside service: how many at a time, retries with back-off, a circuit breaker, and tokens that renew."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeAlias, TypeVar

from domain.faults import ExplainedFailure
from infra import log, metrics

PAUSE_MAX_SECONDS: Final = 30.0
RETRY_AFTER_MAX_SECONDS: Final = 1e9
"""A number of hundreds of digits would be infinite, which JSON cannot represent."""
BUSY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later."""

T = TypeVar("T")
TokenAndLifeSeconds: TypeAlias = tuple[str, float]
Attempt: TypeAlias = Callable[[], Awaitable[T]]
BeforeSending: TypeAlias = Callable[[], Awaitable[None]]
FetchToken = Callable[[], Awaitable[TokenAndLifeSeconds]]
"""Fetches a token and returns it with its life in seconds."""


async def _send_at_once() -> None:
    """Do nothing."""


class ServiceFailure(ExplainedFailure):
    """An outside service did not do what was asked.

    Args:
        message: What was asked, what came back, and what to do next.
        is_transient: Whether the same call may succeed in a moment, so that it is repeated.
        is_answered: Whether the service answered, so that the call is not still under way there.
        retry_after_seconds: How long the service asks to wait.
    """

    is_circuit_open = False
    """Whether nothing was sent because the circuit breaker is open."""
    is_local = False
    """Whether this process raised it before it sent anything, so that it says nothing of the service."""

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool = False,
        is_answered: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.is_transient = is_transient
        self.is_answered = is_answered
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The pauses before a call is repeated.

    Args:
        pauses_seconds: One for each retry.
        patience_seconds: A failure that asks for a longer pause is raised at once: its caller may wait elsewhere.
    """

    pauses_seconds: tuple[float, ...] = ()
    patience_seconds: float = math.inf

    @classmethod
    def exponential(
        cls, retries: int, pause_seconds: float, *, max_requested_pause_seconds: float = math.inf
    ) -> RetryPolicy:
        """Return a policy whose pauses double."""
        return cls(tuple(pause_seconds * 2**number for number in range(retries)), max_requested_pause_seconds)

    def compute_pause_or_none_if_final(self, attempt: int, failure: ServiceFailure) -> float | None:
        """Return the pause after an attempt, counted from 0; None if the call is not repeated."""
        asked = failure.retry_after_seconds or 0.0
        if not failure.is_transient or attempt >= len(self.pauses_seconds) or asked > self.patience_seconds:
            return None
        return min(PAUSE_MAX_SECONDS, max(self.pauses_seconds[attempt], asked))


class CircuitBreaker:
    """Refuse calls for a while after several failures in a row, then let one through as a trial.

    Args:
        failure_threshold: Consecutive failures after which the breaker opens.
        open_seconds: How long it stays open.
        clock: A clock that never runs backwards.
    """

    def __init__(
        self, failure_threshold: int, open_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failure_threshold = failure_threshold
        self.open_seconds = open_seconds
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._last_failure = ""

    @property
    def is_open(self) -> bool:
        """Whether it refuses calls, or lets one through as a trial: nothing has succeeded since it opened."""
        return self._failures >= self.failure_threshold

    def begin_call_if_allowed(self) -> bool:
        """Return whether a call may be made. After the open time, the first caller may, and makes the trial."""
        if not self.is_open:
            return True
        if self._clock() < self._open_until:
            return False
        self._open_until = self._clock() + self.open_seconds
        return True

    def return_trial(self) -> None:
        """Leave the trial to the next caller: nothing was sent."""
        self._open_until = min(self._open_until, self._clock())

    def close(self) -> None:
        """Close the breaker."""
        self._failures = 0

    def count_failure_and_open_at_limit(self, sentence: str) -> None:
        """Count a failure with its sentence, and open the breaker at the threshold."""
        self._last_failure = sentence
        self._failures += 1
        if self.is_open:
            self._open_until = self._clock() + self.open_seconds

    def describe_open_state(self) -> str:
        """Return what is said of a service whose calls are refused: its last failure is the cause."""
        return (
            f"failed {self.failure_threshold} times in a row and is not called for {self.open_seconds:g} s. "
            f"The last failure: {self._last_failure}"
        )


class CallConcurrencyAndRateLimiter:
    """Let calls through in the order in which they come.

    Args:
        concurrency: Calls at a time.
        calls_per_second: Evenly spread; 0 for no limit.
    """

    def __init__(self, concurrency: int, calls_per_second: float = 0.0) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._pause_seconds = 1 / calls_per_second if calls_per_second else 0.0
        self._moment = asyncio.Lock()
        self._next_at = 0.0

    @asynccontextmanager
    async def wait_for_turn(self) -> AsyncIterator[None]:
        """Wait for a slot and for the next moment; hold the slot while the body runs."""
        async with self._slots:
            if self._pause_seconds:
                await self._wait_for_moment()
            yield

    async def _wait_for_moment(self) -> None:
        # One after the other: a call that is cancelled as it waits leaves its moment to the next.
        async with self._moment:
            now = asyncio.get_running_loop().time()
            begins_at = max(self._next_at, now)
            await asyncio.sleep(begins_at - now)
            self._next_at = begins_at + self._pause_seconds


class RetryingServiceCaller:
    """Make the calls to one service, and count and log how they end.

    Args:
        service: Its name in metrics and logs.
        limiter: Holds calls back; None where something else does.
        breaker: Opens after transient failures; None for no breaker.
        build_open_failure: Builds the failure of a call that the open breaker refuses.
        circuit: The name of the breaker in metrics, where callers of one service have several.
    """

    def __init__(
        self,
        service: str,
        *,
        retry: RetryPolicy,
        limiter: CallConcurrencyAndRateLimiter | None = None,
        breaker: CircuitBreaker | None = None,
        build_open_failure: Callable[[CircuitBreaker], ServiceFailure] | None = None,
        circuit: str = "",
    ) -> None:
        self._service = service
        self._circuit = circuit or service
        self._retry = retry
        self._limiter = limiter
        self._breaker = breaker
        self._build_open_failure = build_open_failure
        self.running = 0
        """Calls that have begun and not ended."""

    async def call_with_retries(
        self,
        name: str,
        attempt: Callable[[], Awaitable[T]],
        *,
        before_sending: BeforeSending = _send_at_once,
        repeats: bool = True,
        is_probe: bool = False,
    ) -> T:
        """Make a call, and repeat it after transient failures.

        Args:
            name: The call's name in metrics and logs.
            attempt: Makes one attempt; raises ServiceFailure.
            before_sending: Called before each attempt; if it raises or is cancelled, nothing is sent.
            repeats: Whether the call may be repeated.
            is_probe: Whether the attempt is made although the breaker is open.

        Raises:
            ServiceFailure: The last attempt failed. `is_answered` says whether all attempts were answered.
        """
        self.running += 1
        try:
            return await self._attempt_until_success_or_final_failure(
                name, attempt, before_sending, repeats=repeats, is_probe=is_probe
            )
        finally:
            self.running -= 1

    async def _attempt_until_success_or_final_failure(
        self, name: str, attempt: Attempt[T], before_sending: BeforeSending, *, repeats: bool, is_probe: bool
    ) -> T:
        number, previous = 0, None
        while True:
            try:
                async with self._limiter.wait_for_turn() if self._limiter else nullcontext():
                    return await self._attempt_and_record_unless_circuit_open(
                        name, attempt, before_sending, is_probe=is_probe
                    )
            except ServiceFailure as failure:
                if failure.is_circuit_open and previous is not None:
                    # The service's own answer says more than the breaker that it opened.
                    raise previous from None
                failure.is_answered = failure.is_answered and (previous is None or previous.is_answered)
                pause = self._retry.compute_pause_or_none_if_final(number, failure) if repeats else None
                if pause is None:
                    raise
                previous = failure
            await asyncio.sleep(pause)
            number += 1

    async def _attempt_and_record_unless_circuit_open(
        self, name: str, attempt: Callable[[], Awaitable[T]], before_sending: BeforeSending, *, is_probe: bool
    ) -> T:
        breaker = self._breaker
        is_trial = breaker is not None and breaker.is_open and not is_probe
        if (
            breaker is not None
            and self._build_open_failure is not None
            and not is_probe
            and not breaker.begin_call_if_allowed()
        ):
            refusal = self._build_open_failure(breaker)
            refusal.is_circuit_open, refusal.is_transient = True, False
            metrics.SERVICE_CALLS.labels(self._service, name, "CircuitOpen").inc()
            raise refusal
        began, may_be_sent = time.perf_counter(), False
        try:
            await before_sending()
            may_be_sent = True
            result = await attempt()
        except ServiceFailure as failure:
            if failure.is_local:
                if breaker is not None and is_trial:
                    breaker.return_trial()
                raise
            self._observe_duration(name, began)
            if breaker is not None:
                breaker.count_failure_and_open_at_limit(str(failure)) if failure.is_transient else breaker.close()
                self._set_circuit_gauge(breaker)
            kind = type(failure).__name__
            metrics.SERVICE_CALLS.labels(self._service, name, kind).inc()
            log.get(__name__).warning(
                "service_call_failed", service=self._service, call=name, kind=kind, error=str(failure)
            )
            raise
        except (Exception, asyncio.CancelledError) as error:
            # Not of the service, such as a shard that another worker has taken over: the next caller makes the trial.
            if breaker is not None and is_trial and (isinstance(error, Exception) or not may_be_sent):
                breaker.return_trial()
            raise
        self._observe_duration(name, began)
        if breaker is not None:
            breaker.close()
            self._set_circuit_gauge(breaker)
        metrics.SERVICE_CALLS.labels(self._service, name, "ok").inc()
        return result

    def _observe_duration(self, name: str, began: float) -> None:
        metrics.SERVICE_CALL_SECONDS.labels(self._service, name).observe(time.perf_counter() - began)

    def _set_circuit_gauge(self, breaker: CircuitBreaker) -> None:
        metrics.SERVICE_CIRCUITS.labels(self._circuit).set(breaker.is_open)


class SharedRenewingToken:
    """A token that is fetched when it is needed, shortly before it expires, and after it was refused.

    Concurrent callers share one fetch, and its failure.

    Args:
        early_seconds: How long before it expires a token is renewed.
        early_share: The largest share of its life that this may be.
    """

    def __init__(self, *, early_seconds: float = 60.0, early_share: float = 0.1) -> None:
        self._early_seconds = early_seconds
        self._early_share = early_share
        self._token: str | None = None
        self._stale_at = 0.0  # by the clock of the event loop
        self._fetching: asyncio.Task[str] | None = None

    async def get_or_fetch(self, refused: str | None, fetch: FetchToken) -> str:
        """Return a token that is valid as far as is known.

        Args:
            refused: A token that the service has refused, whatever its life.
            fetch: Fetches a new one.
        """
        is_fresh = asyncio.get_running_loop().time() < self._stale_at
        if self._token is not None and is_fresh and self._token != refused:
            return self._token
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch_token_and_store_expiry(fetch))
            # If all callers are cancelled, nothing else retrieves the task's exception.
            self._fetching.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._fetching)

    async def _fetch_token_and_store_expiry(self, fetch: FetchToken) -> str:
        try:
            self._token, life_seconds = await fetch()
            early = min(self._early_seconds, life_seconds * self._early_share)
            self._stale_at = asyncio.get_running_loop().time() + life_seconds - early
            return self._token
        finally:
            self._fetching = None


class RequestSize:
    """How many items a request asks for: fewer while they are large, so that the response stays within its limit.

    Args:
        most: The number for items of usual size.
    """

    def __init__(self, most: int) -> None:
        self.items = most
        self._most = most

    def shrink_if_possible(self, refused: int) -> bool:
        """Ask for fewer after a response to this many was too large; return False if it was a single one."""
        self.items = min(self.items, max(1, refused // 2))
        return refused > 1

    def grow(self) -> None:
        """Ask for more, slowly: what is too large is sent in vain."""
        self.items = min(self._most, self.items + max(1, self.items // 4))


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header, a number or a date; None if it is missing or malformed.

    Args:
        now: What a date is counted from; by default the response's own date, or else this machine's clock.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return min(float(value), RETRY_AFTER_MAX_SECONDS)
    if (moment := parse_http_date(value)) is None:
        return None
    return max(0.0, (moment - (now or parse_http_date(headers.get("Date", "")) or datetime.now(UTC))).total_seconds())


def parse_http_date(value: str) -> datetime | None:
    """Return the moment of an HTTP date; None if it is malformed."""
    try:
        moment = parsedate_to_datetime(value)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
