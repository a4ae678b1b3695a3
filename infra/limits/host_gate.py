"""The host gate: requests under way to one host are limited over all processes, without asking for each."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final, Self

from domain.limits import UsableAndHeldPermits
from infra import log
from infra.database import DATABASE_ERRORS
from infra.limits.limiter import DatabaseLimiter, PermitSharingRules

TTL_SECONDS: Final = 10.0
"""How long a killed process keeps its permits."""
RENEWALS: Final = 10
"""Renewals of a process' permits within their lifetime."""
SHORT_RENEWALS: Final = 50
"""Renewals within that time while a process has fewer permits than it could use."""

_log = log.get(__name__)

AskForShare = Callable[..., Awaitable[UsableAndHeldPermits]]


class HostRequestLimiter:
    """Limit this process' requests to each host: `async with gate.permit(host):` around every request.

    The process leases as many permits from the database as it uses, grants them first come first served, renews them
    together, and returns those that it no longer uses. The permits of a killed process expire.

    Args:
        limit: Requests to a host at a time, over all processes.
        ttl_seconds: How long permits that are not renewed stay leased.
    """

    def __init__(self, limiter: DatabaseLimiter, limit: int, *, ttl_seconds: float = TTL_SECONDS) -> None:
        self.holder = f"gate_{secrets.token_hex(8)}"
        self._limiter = limiter
        ttl = timedelta(seconds=ttl_seconds)
        self._rules = PermitSharingRules(limit, turn=ttl / RENEWALS, ttl=ttl)
        self._hosts: dict[str, ProcessShareOfHostPermits] = {}

    async def __aenter__(self) -> HostRequestLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        for permits in self._hosts.values():
            await permits.close()
        try:
            await self._limiter.delete_shares(self.holder)
        except DATABASE_ERRORS as error:
            _log.warning("permit_return_failed", error=str(error))

    def permit(self, host: str) -> HostRequestPermit:
        """Return a permit for one request, to be held until its answer has been read."""
        return HostRequestPermit(self, host.lower().rstrip("."))

    def get_or_create_pool(self, host: str) -> ProcessShareOfHostPermits:
        """Return what this process holds for a host; create it if there is none."""
        permits = self._hosts.get(host)
        if permits is None or permits.has_ended:
            self._hosts = {name: each for name, each in self._hosts.items() if not each.has_ended}
            ask = partial(self._limiter.renew_share, f"host:{host}", self.holder, rules=self._rules)
            permits = self._hosts[host] = ProcessShareOfHostPermits(ask, self._rules)
        return permits


class HostRequestPermit:
    """The right to send one request to a host."""

    __slots__ = ("_gate", "_host", "_permits")

    def __init__(self, gate: HostRequestLimiter, host: str) -> None:
        self._gate = gate
        self._host = host
        self._permits: ProcessShareOfHostPermits | None = None

    async def __aenter__(self) -> Self:
        permits = self._gate.get_or_create_pool(self._host)
        await permits.wait_for_permit()
        self._permits = permits
        return self

    async def __aexit__(self, *_: object) -> None:
        self._return()

    async def give_back_during(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait without the permit, and take one again: what is waited for may need one to come to its end."""
        self._return()
        await wait()
        await self.__aenter__()

    def _return(self) -> None:
        permits, self._permits = self._permits, None
        if permits is not None:
            permits.return_permit()


class ProcessShareOfHostPermits:
    """The permits for one host that this process holds; they end when the process has needed none for a while.

    Args:
        ask: Asks the limiter for this process' share, given the permits `in_use` and the `demand`.
        rules: How the limiter divides the permits.
    """

    def __init__(self, ask: AskForShare, rules: PermitSharingRules) -> None:
        self._ask = ask
        self._limit = rules.limit
        self._ttl_seconds = rules.ttl.total_seconds()
        self._in_use = 0
        self._peak = 0  # the most that could be used at once since the last renewal
        self._share = UsableAndHeldPermits(usable=0, permits=0)
        self._is_short = False
        self._good_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._renewing = self._loop.create_task(self._renew_and_fail_waiting_on_error())

    @property
    def has_ended(self) -> bool:
        """Whether it holds no permits any more, and takes none again."""
        return self._renewing.done()

    async def wait_for_permit(self) -> None:
        """Wait for a permit."""
        self._peak = max(self._peak, self._in_use + len(self._waiting) + 1)
        if not self._waiting and self._has_free_permit():
            self._in_use += 1
            return
        if not self._is_short:
            self._wake.set()
        await self._wait_in_queue()

    def return_permit(self) -> None:
        """Return a permit; the request that has waited longest gets it next."""
        self._in_use -= 1
        self._grant_free_permits_to_waiting()
        if self._share.permits > self._share.usable:
            self._wake.set()

    async def close(self) -> None:
        """Stop renewing; requests that still wait fail with ConnectionError."""
        self._renewing.cancel()
        await asyncio.wait([self._renewing])

    def _has_free_permit(self) -> bool:
        return self._in_use < self._share.usable and self._loop.time() < self._good_until

    def _grant_free_permits_to_waiting(self) -> None:
        while self._waiting and self._has_free_permit():
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_use += 1
                turn.set_result(None)

    async def _wait_in_queue(self) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled() and turn.exception() is None:
                self.return_permit()  # it was granted at the moment it was cancelled
            raise

    async def _renew_and_fail_waiting_on_error(self) -> None:
        try:
            await self._renew_share_until_unused()
        except BaseException as error:
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_exception(
                        ConnectionError(f"The host gate closed while a request waited for a permit: {error!r}")
                    )
            raise

    async def _renew_share_until_unused(self) -> None:
        """Renew until no permit is in use, waited for or held."""
        while True:
            try:
                demand = await self._renew_share_and_return_demand()
            except DATABASE_ERRORS as error:
                _log.warning("permit_renewal_failed", error=str(error))
                await asyncio.sleep(self._ttl_seconds / RENEWALS)
                continue
            if not (demand or self._peak or self._share.permits):
                return
            if max(self._in_use, self._share.usable) == self._share.permits:
                await self._pause_renewals_until_due_or_woken()

    async def _renew_share_and_return_demand(self) -> int:
        asked_at = self._loop.time()
        if asked_at >= self._good_until:
            self._share = UsableAndHeldPermits(usable=0, permits=self._share.permits)
        could_use = self._in_use + len(self._waiting)
        demand = min(self._limit, max(self._peak, could_use))
        self._peak = could_use
        self._wake.clear()
        # Permits that are usable now may come into use before the answer arrives.
        self._share = await self._ask(in_use=max(self._in_use, self._share.usable), demand=demand)
        self._good_until = asked_at + self._ttl_seconds
        self._is_short = self._share.usable < demand
        self._grant_free_permits_to_waiting()
        return demand

    async def _pause_renewals_until_due_or_woken(self) -> None:
        is_short = self._is_short and self._share.usable < self._limit
        with suppress(TimeoutError):
            async with asyncio.timeout(self._ttl_seconds / (SHORT_RENEWALS if is_short else RENEWALS)):
                await self._wake.wait()
