"""Rates within this process: the requests of each project, and the wrong keys of each address."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from aiohttp import web

from api.http.routes import Caller
from domain.faults import QuotaExhausted
from domain.quotas import MINUTE_SECONDS, SingleQuotaUsage, build_quota_exceeded_fault

REFUSAL_DELAY_MAX_SECONDS = 5.0
LISTS_AT_ONCE_MAX = 8
"""Lists of one project that a process reads at the same time; its others wait, those of other projects do not."""
KEYS_MAX = 10_000
"""Projects, and addresses of wrong keys, that are remembered."""


class RateMeter:
    """Count what comes under each key, by the generic cell rate algorithm: one time for each key, and no timer.

    A key that was idle may use the amount of a minute at once; after that it has what the rate brings.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        """When what came under a key would all have come at its rate."""

    def count_unless_too_early(self, key: str, per_minute: int, max_early_seconds: float = 0.0) -> float:
        """Count one, unless it is more than `max_early_seconds` early; return the seconds by which it is early."""
        now = self._clock()
        due = self._due.get(key)
        if due is None:
            self._remove_past_or_all_keys_if_full(now)
            due = now
        elif due < now:
            due = now
        # A rounding error must not cost the last one of a minute.
        seconds = due + MINUTE_SECONDS / per_minute - now - MINUTE_SECONDS - 1e-6
        if seconds <= max_early_seconds:
            self._due[key] = due + MINUTE_SECONDS / per_minute
        return seconds if seconds > 0 else 0.0

    def read_used_amount_and_reset_seconds(self, key: str, per_minute: int) -> tuple[int, float]:
        """Return how many of a minute's amount are used, and the seconds until all are back."""
        left = max(0.0, self._due.get(key, 0.0) - self._clock())
        return min(per_minute, math.ceil(left * per_minute / MINUTE_SECONDS - 1e-6)), left

    def _remove_past_or_all_keys_if_full(self, now: float) -> None:
        if len(self._due) >= KEYS_MAX:
            self._due = {each: due for each, due in self._due.items() if due > now}
        if len(self._due) >= KEYS_MAX:
            self._due.clear()


class RequestRates:
    """The requests of each project in this process, and its quota of them. The administrator has none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter = RateMeter(clock)
        self._lists = WeakValueDictionary[str, asyncio.Semaphore]()

    @asynccontextmanager
    async def wait_for_turn_to_list_rows(self, caller: Caller) -> AsyncIterator[None]:
        """Let a project read few lists at a time: each costs far more than other requests."""
        if caller.project_id is None or caller.is_admin:
            yield
            return
        # Remembered as long as a request of the project holds it or waits for it.
        # One project waits for itself alone, in the order of arrival.
        turns = self._lists.setdefault(caller.project_id, asyncio.Semaphore(LISTS_AT_ONCE_MAX))
        async with turns:
            yield

    def count_request_within_quota(self, caller: Caller) -> None:
        """Count a request of a project.

        Raises:
            QuotaExhausted: The project sends more than its quota.
        """
        if caller.project_id is None or caller.quotas is None or caller.is_admin:
            return
        per_minute = caller.quotas.requests_per_minute
        seconds = self._meter.count_unless_too_early(caller.project_id, per_minute)
        if seconds:
            raise build_quota_exceeded_fault(
                ["requests_per_minute"],
                f"This project sends more than {per_minute:,} requests a minute, as many as it may.",
                "Send fewer, or several things in one request; GET /v1/quotas shows what is used.",
                seconds,
            )

    def read_usage(self, project_id: str, per_minute: int) -> SingleQuotaUsage:
        """Return how much of its quota a project has used in this process."""
        used, seconds = self._meter.read_used_amount_and_reset_seconds(project_id, per_minute)
        return SingleQuotaUsage("requests_per_minute", used, seconds if used else None)


REQUEST_RATES = web.AppKey("request_rates", RequestRates)


class RefusalDelay:
    """Delay the refusals of wrong keys by the rate at which their address sends them; right keys are never delayed."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._meter = RateMeter(clock)

    async def count_wrong_key_and_delay_refusal(self, address: str) -> None:
        """Count a wrong key, and wait where its address has sent more than it may within a minute.

        Raises:
            QuotaExhausted: The wait would be longer than `REFUSAL_DELAY_MAX_SECONDS`.
        """
        seconds = self._meter.count_unless_too_early(address, self._per_minute, REFUSAL_DELAY_MAX_SECONDS)
        if seconds > REFUSAL_DELAY_MAX_SECONDS:
            raise QuotaExhausted(
                "too_many_wrong_keys",
                "Too many wrong keys came from this address.",
                "Correct the key; right keys are not refused.",
                retry_after_seconds=math.ceil(seconds),
            )
        if seconds > 0:
            await asyncio.sleep(seconds)
