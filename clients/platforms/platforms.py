"""All platforms that a process reads: one set of permits for each, whoever works with it."""

from __future__ import annotations

from clients.http import GuardedClient
from clients.platforms.client import PlatformClient
from clients.platforms.connector import Connector
from clients.platforms.pace import Pace
from clients.platforms.permits import Permits, PlatformGate, detail_bucket
from clients.platforms.tape import Tape
from domain.orders.access import Account, CredentialsReader
from domain.orders.capability import Capability
from domain.orders.declarations import DetailCall, RateLimit
from infra.limits import Limiter


class Platforms:
    """Builds connectors. A process has one, so that all its connectors to a platform share permits."""

    def __init__(self, http: GuardedClient, limiter: Limiter) -> None:
        self._http = http
        self._limiter = limiter
        self._gates: dict[str, PlatformGate] = {}

    def connector(
        self,
        capability: Capability,
        account: Account,
        keyring: CredentialsReader,
        *,
        rate: RateLimit | None = None,
        tape: Tape | None = None,
        pace: Pace | None = None,
    ) -> Connector:
        """Build a connector for one piece of work.

        Args:
            rate: The configured rate, by default the platform's.
            tape: Answers of earlier attempts.
            pace: The time budget, by default unlimited with short waits.
        """
        capability = capability.versioned()
        gate = self._gate(account.platform, rate or capability.rate, capability.detail)
        client = PlatformClient(self._http, gate, capability, account, keyring, tape or Tape(), pace or Pace())
        return Connector(client, capability, account)

    def _gate(self, platform: str, rate: RateLimit, detail: DetailCall | None) -> PlatformGate:
        gate = self._gates.get(platform)
        if gate is None:
            permits = Permits(self._limiter, platform, rate)
            gate = self._gates[platform] = PlatformGate(permits, permits)
        elif gate.permits.rate != rate:
            gate.permits = Permits(self._limiter, platform, rate)
        if detail is None or detail.rate is None:
            gate.details = gate.permits
        elif gate.details.rate != (apart := detail.rate.model_copy(update={"per_day": rate.per_day})):
            gate.details = Permits(self._limiter, platform, apart, bucket=detail_bucket(platform))
        return gate
