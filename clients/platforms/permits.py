"""Permits for requests to one account, and the time budget of an attempt, which limits how long it waits for them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self

from clients.http import CircuitBreaker
from clients.platforms.credentials import AccessTokensByCredentials
from clients.platforms.failures import PlatformBusy
from domain.limits import RateDemand
from domain.orders.declarations import RateLimit
from infra.limits import DatabaseLimiter

DAY_SECONDS: Final = 86_400.0
HELD_SHARE: Final = 1 / 20
"""How long a permit may be held before it is used, as a share of the window after which it comes back."""
HELD_MIN_SECONDS: Final = 0.05
HELD_MAX_SECONDS: Final = 1.0
SHORTEST_WAIT_SECONDS: Final = 0.001
PATIENCE_SECONDS: Final = 5.0
BATCH_SHARE: Final = 1 / 4
"""Share of a burst that one process takes at a time."""
BREAKER_FAILURES: Final = 30
BREAKER_SECONDS: Final = 5.0
"""Consecutive failures after which a platform gets no request for this long, then a single one as a trial."""
NO_QUOTA: Final = 10**12
"""Requests of a day are counted without a quota, too: this limit is never reached."""


def build_rate_bucket_name(platform: str) -> str:
    """Return the bucket of requests to a platform."""
    return f"platform:{platform}"


def build_project_bucket_name(project_id: str) -> str:
    """Return the bucket of all requests within a day to the platforms of a project."""
    return f"platforms:{project_id}:day"


def build_detail_bucket_name(platform: str) -> str:
    """Return the bucket of requests for one order, where the platform counts them separately."""
    return f"platform:{platform}:details"


def build_day_bucket_name(platform: str) -> str:
    """Return the bucket of a platform's requests within a day."""
    return f"platform:{platform}:day"


@dataclass(frozen=True, slots=True)
class DailyQuotaOfAllPlatforms:
    """How many requests within a day a project may make to all its platforms together."""

    project_id: str
    per_day: int


@dataclass(slots=True)
class PlatformStateSharedByConnectors:
    """What all connectors of this process to one platform share, as long as it is at one address."""

    base_url: str
    permits: RequestPermits
    details: RequestPermits
    """The same, or others where the platform counts requests for one order separately."""
    tokens: AccessTokensByCredentials = field(default_factory=AccessTokensByCredentials)
    breaker: CircuitBreaker = field(default_factory=lambda: CircuitBreaker(BREAKER_FAILURES, BREAKER_SECONDS))
    skew: timedelta | None = None
    """How far its clock is ahead of ours; None before its first answer."""
    uncapped_page_sizes: set[int] = field(default_factory=set)
    """The page sizes of which it has listed a full page."""
    large_answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held by the large answer that is being read; each exists several times until it is parsed."""


class RequestPermits:
    """This process' permits for one platform.

    A burst comes back as a whole one window of `burst / per_second` after it was spent: no stretch of t seconds sees
    more than `burst + per_second × t` requests. Permits count from when they are taken, used or not; they must be used
    within `held_seconds`, by which the window is longer, so that a permit used late exceeds no rate. A batch grows only
    while all of the previous one are used in time: permits that expire are lost for every process.
    """

    def __init__(
        self,
        limiter: DatabaseLimiter,
        platform: str,
        rate: RateLimit,
        *,
        bucket: str = "",
        quota: DailyQuotaOfAllPlatforms | None = None,
    ) -> None:
        self.rate = rate
        self.quota = quota
        self._limiter = limiter
        self._platform = platform
        self._bucket = bucket or build_rate_bucket_name(platform)
        window_seconds = rate.burst / rate.per_second
        self.held_seconds = min(HELD_MAX_SECONDS, max(HELD_MIN_SECONDS, window_seconds * HELD_SHARE))
        self._window_seconds = window_seconds + self.held_seconds
        useful, fair = int(rate.per_second * self.held_seconds), int(rate.burst * BATCH_SHARE)
        self._batch_max = max(1, min(useful, fair, rate.per_day or useful, quota.per_day if quota else useful))
        self._batch = 1
        self._left = 0
        self._good_until = -math.inf
        self._room_at = -math.inf
        """When the request whose turn it is expects a permit."""
        self._turn = asyncio.Lock()

    async def wait_for_permit(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for one permit; raises PlatformBusy if that would take longer: then a timer of the workflow waits."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience_seconds
        # The request whose turn it is may wait for as long as a report does, which is longer than a slice can.
        if self._turn.locked() and (room_in := self._room_at - clock()) > patience_seconds:
            raise self._build_rate_used_up(room_in)
        try:
            async with asyncio.timeout_at(max(deadline, clock() + HELD_MAX_SECONDS)):
                await self._turn.acquire()
        except TimeoutError:
            raise self._build_rate_used_up(max(self._room_at - clock(), SHORTEST_WAIT_SECONDS)) from None
        try:
            if self._left and clock() < self._good_until:
                self._left -= 1
                return
            is_used_up = clock() < self._good_until
            self._batch = min(self._batch_max, 2 * self._batch) if is_used_up else max(1, self._batch - self._left)
            # One permit of a batch is used as it arrives: where the database is slow, the others may have expired.
            while wait_seconds := await self._take_permits_or_get_wait_seconds():
                if clock() + wait_seconds > deadline:
                    raise self._build_rate_used_up(wait_seconds)
                self._room_at = clock() + wait_seconds
                await asyncio.sleep(wait_seconds)
            self._left -= 1
        finally:
            self._turn.release()

    async def _take_permits_or_get_wait_seconds(self) -> float:
        """Take a batch, or else one; return how long to wait if even that is not available."""
        asked_at = asyncio.get_running_loop().time()
        wait_seconds = 0.0
        for amount in sorted({self._batch, 1}, reverse=True):
            verdicts = await self._limiter.take_all_or_none(self._build_demands(amount), [])
            if all(each.allowed for each in verdicts):
                self._batch = self._left = amount
                self._good_until = asked_at + self.held_seconds
                return 0.0
            wait_seconds = max(each.reset_seconds for each in verdicts if not each.allowed)
        return max(wait_seconds, SHORTEST_WAIT_SECONDS)

    def _build_rate_used_up(self, wait_seconds: float) -> PlatformBusy:
        quota = f", {self.quota.per_day:,} a day to all platforms of its project" if self.quota else ""
        busy = PlatformBusy(
            f"The rate of {self.rate.per_second:g} requests a second (bursts of {self.rate.burst}, "
            f"{self.rate.per_day or 'no limit'} a day{quota}) to platform {self._platform} is used up by all "
            "workers together.",
            f"It has room again in {wait_seconds:.0f} s.",
            retry_after_seconds=wait_seconds,
        )
        busy.is_local = True
        return busy

    def _build_demands(self, amount: int) -> list[RateDemand]:
        demands = [
            RateDemand(self._bucket, amount, self.rate.burst, self._window_seconds),
            RateDemand(build_day_bucket_name(self._platform), amount, self.rate.per_day or NO_QUOTA, DAY_SECONDS),
        ]
        if self.quota:
            bucket = build_project_bucket_name(self.quota.project_id)
            demands.append(RateDemand(bucket, amount, self.quota.per_day, DAY_SECONDS))
        return demands


WAITING_SHARE: Final = 0.5
OWN_WAIT_PAUSE_SECONDS: Final = 10.0
"""Pause after an attempt that has waited for other work of this process as long as it may."""
READING_SHARE: Final = 0.9
"""Share of its time after which an attempt stops by itself: its answers are stored, and the next one continues."""


@dataclass(slots=True)
class OwnWaits:
    """How long one request has waited for other work of this process."""

    seconds: float = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time that the body takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began


@dataclass(slots=True)
class AttemptTimeBudget:
    """The time budget of an attempt.

    Args:
        patience_seconds: Limit of all waits together; a longer one is left to a timer of the workflow.
        until: When to stop, by the monotonic clock.
        answer_seconds: Timeout of each request, that of the client by default; none lasts beyond `until`.
        slowest_answer_seconds: The longest that a request has taken so far; none begins that may end after `until`.
    """

    patience_seconds: float = PATIENCE_SECONDS
    until: float = math.inf
    answer_seconds: float | None = None
    slowest_answer_seconds: float = 0.0
    waited_until: float = -math.inf

    @classmethod
    def for_attempt(cls, timeout_seconds: float, began: float) -> Self:
        """Build the budget of an attempt with this timeout, of which some has gone by since it began.

        Its end uses the same database and store as its beginning, so it is given as long, and a tenth at least; but no
        more than half of what is left, so that some is read however slow they are.
        """
        used = time.monotonic() - began
        end_seconds = min(max(used, timeout_seconds * (1 - READING_SHARE)), (timeout_seconds - used) / 2)
        return cls(timeout_seconds * WAITING_SHARE, began + timeout_seconds - end_seconds)

    @property
    def seconds_left(self) -> float:
        """How long it may still wait before it sends a request; negative where it is time to stop."""
        return self.until - self.slowest_answer_seconds - time.monotonic()

    @contextmanager
    def record_slowest_answer(self) -> Iterator[OwnWaits]:
        """Record how long a request takes, without its waits for other work of this process."""
        began, waits = time.monotonic(), OwnWaits()
        try:
            yield waits
        finally:
            answer_seconds = time.monotonic() - began - waits.seconds
            self.slowest_answer_seconds = max(self.slowest_answer_seconds, answer_seconds)

    async def wait_for_permit(self, permits: RequestPermits) -> None:
        """Wait for a permit; raises PlatformBusy where that takes longer than the patience and time that are left."""
        began = time.monotonic()
        try:
            await permits.wait_for_permit(min(self.patience_seconds, self.seconds_left))
        except PlatformBusy as busy:
            # The request is not repeated within an attempt: it would wait on, until its time is used up, which is a
            # failure. A timer of the workflow waits instead.
            busy.is_transient = self.until == math.inf
            raise
        finally:
            self.subtract_wait_from_patience(began)

    @asynccontextmanager
    async def limit_own_wait(self, sentence: str) -> AsyncIterator[None]:
        """Limit how long the body waits for what other work of this process holds.

        Raises:
            PlatformBusy: It takes longer than the patience and time that are left. That is no failure of the platform
                or the slice: a timer of the workflow waits instead.
        """
        began, seconds = time.monotonic(), min(self.patience_seconds, self.seconds_left)
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                yield
        except TimeoutError:
            hint = "It goes on once other slices have ended."
            busy = PlatformBusy(sentence, hint, retry_after_seconds=OWN_WAIT_PAUSE_SECONDS)
            busy.is_local, busy.is_transient = True, False
            raise busy from None
        finally:
            self.subtract_wait_from_patience(began)

    def subtract_wait_from_patience(self, began: float) -> None:
        """Subtract a wait that ends now from the patience; time in which several requests wait counts once."""
        now = time.monotonic()
        self.patience_seconds = max(0.0, self.patience_seconds - (now - max(began, self.waited_until)))
        self.waited_until = now
