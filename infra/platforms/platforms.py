"""All platforms that a process reads: one set of permits for each, whoever works with it."""

from __future__ import annotations

from domain.orders.capability import Capability, RateLimit
from infra.http import GuardedClient
from infra.limits import Limiter
from infra.platforms.access import Account, Keyring
from infra.platforms.connector import Connector
from infra.platforms.permits import Permits, PlatformGate


class Platforms:
    """Makes connectors. A process has one of these, so that its permits are taken in batches and used by all."""

    def __init__(self, http: GuardedClient, limiter: Limiter) -> None:
        self._http = http
        self._limiter = limiter
        self._gates: dict[str, PlatformGate] = {}

    def connector(
        self, capability: Capability, account: Account, keyring: Keyring, *, rate: RateLimit | None = None
    ) -> Connector:
        """A connector for one piece of work; `rate` is what the configuration allows, by default the platform's."""
        return Connector(
            self._http, self._gate(account.platform, rate or capability.rate), capability, account, keyring
        )

    def _gate(self, platform: str, rate: RateLimit) -> PlatformGate:
        gate = self._gates.get(platform)
        if gate is None:
            gate = self._gates[platform] = PlatformGate(Permits(self._limiter, platform, rate))
        elif gate.permits.rate != rate:
            gate.permits = Permits(self._limiter, platform, rate)
        return gate
