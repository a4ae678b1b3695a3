"""All platforms that a process reads: one set of permits for each, whoever works with it."""

from __future__ import annotations

from domain.orders.capability import Capability, RateLimit
from infra.http import GuardedClient
from infra.limits import Limiter
from infra.platforms.access import Account, Keyring
from infra.platforms.connector import Connector
from infra.platforms.permits import Permits


class Platforms:
    """Makes connectors. A process has one of these, so that its permits are taken in batches and used by all."""

    def __init__(self, http: GuardedClient, limiter: Limiter) -> None:
        self._http = http
        self._limiter = limiter
        self._permits: dict[str, Permits] = {}

    def connector(
        self, capability: Capability, account: Account, keyring: Keyring, *, rate: RateLimit | None = None
    ) -> Connector:
        """A connector for one piece of work; `rate` is what the configuration allows, by default the platform's."""
        permits = self._of(account.platform, rate or capability.rate)
        return Connector(self._http, permits, capability, account, keyring)

    def _of(self, platform: str, rate: RateLimit) -> Permits:
        permits = self._permits.get(platform)
        if permits is None or permits.rate != rate:
            permits = self._permits[platform] = Permits(self._limiter, platform, rate)
        return permits
