"""The host gate: requests under way to one source host are limited over all processes, without asking for each."""

from __future__ import annotations

import secrets
from datetime import timedelta
from functools import partial
from typing import Final

from infra import log
from infra.database import FAILURES
from infra.limits.limiter import Limiter, Sharing
from infra.limits.pool import RENEWALS, Pool

TTL_SECONDS: Final = 10.0
"""How long a killed process keeps its permits."""


class HostGate:
    """This process's gate to source hosts: `async with gate.permit(host):` around every request.

    The process takes as many permits as it uses from the database, hands them out by itself, first come first served,
    renews them together, and gives back what it no longer uses. The permits of a killed process expire.

    Args:
        limit: Requests at a time to a host, over all processes.
        ttl_seconds: After how long without a sign of life a process' permits are free again.
    """

    def __init__(self, limiter: Limiter, limit: int, *, ttl_seconds: float = TTL_SECONDS) -> None:
        self.holder = f"gate_{secrets.token_hex(8)}"
        self._limiter = limiter
        ttl = timedelta(seconds=ttl_seconds)
        self._rules = Sharing(limit, turn=ttl / RENEWALS, ttl=ttl)
        self._pools: dict[str, Pool] = {}

    async def __aenter__(self) -> HostGate:
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools.values():
            await pool.close()
        try:
            await self._limiter.withdraw(self.holder)
        except FAILURES as error:
            log.get(__name__).warning("permits_left_to_expire", error=str(error))

    def permit(self, host: str) -> Permit:
        """A permit for one request, to be held until its answer was read."""
        return Permit(self, host.lower().rstrip("."))

    def pool(self, host: str) -> Pool:
        """What this process holds for a host."""
        pool = self._pools.get(host)
        if pool is None or pool.ended:
            self._pools = {name: each for name, each in self._pools.items() if not each.ended}
            ask = partial(self._limiter.share, f"host:{host}", self.holder, rules=self._rules)
            pool = self._pools[host] = Pool(ask, self._rules)
        return pool


class Permit:
    """Leave to send one request to a host."""

    __slots__ = ("_gate", "_host", "_pool")

    def __init__(self, gate: HostGate, host: str) -> None:
        self._gate = gate
        self._host = host

    async def __aenter__(self) -> None:
        self._pool = self._gate.pool(self._host)
        await self._pool.take()

    async def __aexit__(self, *_: object) -> None:
        self._pool.give_back()
