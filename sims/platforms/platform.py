"""One running stand-in: its orders, its dialect, and the checks before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from sims.platforms.clock import MICRO
from sims.platforms.dialects import DIALECTS
from sims.platforms.dialects.base import Refusal, Reply, StandInRequest
from sims.platforms.gate import Mishap, Mishaps, Throttle, Tokens
from sims.platforms.login import Login
from sims.platforms.market import Market
from sims.platforms.scenario import PlatformScenario
from sims.platforms.texts import amazon_id, odd_id, order_id


class Platform:
    """Answers requests as its scenario says."""

    def __init__(self, scenario: PlatformScenario) -> None:
        self.dialect = DIALECTS[scenario.kind](scenario.milliseconds)
        self.market = Market(scenario, self.dialect.grain_us)
        self.login = Login()
        self.set(scenario)
        self.calls: Counter[str] = Counter()

    def set(self, scenario: PlatformScenario) -> None:
        """Go on with other changes, limits and faults; orders and clock stay."""
        self.scenario = self.market.scenario = scenario
        self.throttle = Throttle(scenario.limits)
        self.tokens = Tokens(scenario.faults, issues=scenario.login)
        self._mishaps = Mishaps(scenario.seed, scenario.faults)

    @property
    def credentials(self) -> Mapping[str, str]:
        """What is good to be shown now."""
        return self.login.credentials if self.scenario.login else self.dialect.credentials(self.tokens.good)

    @property
    def mishaps_happened(self) -> int:
        """How many answers went wrong."""
        return self._mishaps.happened

    def answer(self, request: StandInRequest) -> tuple[Reply, Mishap | None]:
        """The reply, and whether it breaks off."""
        self.market.tick()
        reply, mishap = self._answer(request)
        self.calls[str(reply.status)] += 1
        now = datetime.fromtimestamp(self.market.now_us // MICRO, UTC)
        headers = {"Date": format_datetime(now, usegmt=True), "Content-Type": "application/json", **reply.headers}
        return Reply(reply.body, reply.status, headers), mishap

    def _answer(self, request: StandInRequest) -> tuple[Reply, Mishap | None]:
        dialect, is_clock = self.dialect, self.dialect.is_clock(request)
        counts = dialect.clock_counts if is_clock else not dialect.is_apart(request)
        if counts and (wait := self.throttle.wait_seconds()):
            return dialect.error(429, "busy", "too many requests", wait), None
        call = dialect.call(request)
        if call is None:
            return dialect.error(404, "refused", f"there is nothing at {request.path}"), None
        if not is_clock and not self.tokens.admits(dialect.token(request)):
            return dialect.error(401, "expired", "invalid session"), None
        if is_clock and self.scenario.faults.clock_down:
            return dialect.error(500, "broken", "the clock has stopped"), None
        mishap = None if is_clock else self._mishaps.draw()
        if mishap is Mishap.ERROR:
            return dialect.error(500, "broken", "internal error"), None
        if mishap is Mishap.BUSY:
            return dialect.error(429, "busy", "too many requests", self.scenario.faults.busy_seconds), None
        self.calls["told"] += 1
        try:
            return call(self.market, request), mishap
        except Refusal as refusal:
            return refusal.reply, None

    def ledger(self) -> Mapping[str, Any]:
        """What is true: a column for each property, an order in each place of them."""
        market = self.market
        market.tick()
        names: Mapping[str, Callable[[int], object]] = {"amazon": amazon_id, "plain": odd_id}
        is_odd = self.scenario.kind == "amazon" or self.scenario.odd_ids
        name = names.get(self.scenario.kind, order_id) if is_odd else order_id
        return {
            "now_us": market.now_us,
            "ids": [str(name(number)) for number in range(len(market.created))],
            "modified_us": market.truth.modified,
            "versions": market.truth.version,
            "shown_versions": market.shown.version,
        }

    def stats(self) -> Mapping[str, Any]:
        """What was asked, and when."""
        return {
            "requests": len(self.throttle.times),
            "refused": self.throttle.refused,
            "calls": dict(self.calls),
            "changes": self.market.changes,
            "orders": len(self.market.created),
            "late_most_seconds": self.market.late_most_us / MICRO,
        }
