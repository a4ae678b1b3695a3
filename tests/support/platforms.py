"""A connector and the stand-in platform that it reads, on one machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from clients.http import GuardedClient
from clients.platforms import (
    OrderPage,
    PlatformConnector,
    PlatformConnectorFactory,
    ReplayableAnswerLog,
    RequestPermits,
)
from clients.platforms.permits import PATIENCE_SECONDS
from domain.limits import LimitDecision, RateDemand, SlotDemand
from domain.orders.access import Account, Credentials
from domain.orders.capability import Capability, PlatformOrder
from domain.orders.declarations import RateLimit
from domain.orders.known_platforms import KNOWN_PLATFORMS
from domain.orders.windows import TimeWindow
from infra.limits import DatabaseLimiter
from infra.settings import EgressGuardSettings
from sims.platforms import checker
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN, PLAIN_MILLISECONDS
from sims.platforms.platform import Platform
from sims.platforms.scenario import Kind, PlatformScenario
from sims.platforms.server import running_platforms

NUMBER = "7"
KINDS: tuple[Kind, ...] = ("plain", "taobao", "pinduoduo", "shopify", "woocommerce", "amazon")
SETTLED_SECONDS = 300
SMALL_PAGES = {"paging": PLAIN.paging.model_copy(update={"size": 100})}
QUICK = RateLimit(per_second=10_000, burst=10_000)


class OpenLimiter(DatabaseLimiter):
    """A limiter without a database that lets everything pass and remembers what was taken."""

    def __init__(self) -> None:
        self.taken: list[RateDemand] = []

    async def take_all_or_none(self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]) -> list[LimitDecision]:
        """Yes."""
        self.taken += rates
        return [LimitDecision(allowed=True, remaining=rate.limit, reset_seconds=1.0) for rate in rates]


class Again(Protocol):
    """Makes another connector."""

    def __call__(self, answers: ReplayableAnswerLog, other: Capability | None = None, /) -> PlatformConnector:
        """It reads the same account."""


@dataclass
class RunningConnector:
    """One platform, and how it is read."""

    address: str
    platform: Platform
    connector: PlatformConnector
    limiter: OpenLimiter
    again: Again
    """Another connector, which goes on from what one has read, perhaps by another record."""
    renewals: list[bool] = field(default_factory=list)

    def window(self, seconds: float, *, until_seconds_ago: float = SETTLED_SECONDS) -> TimeWindow:
        """A window that ended some time ago."""
        end = datetime.fromtimestamp(self.platform.market.now_us // MICRO, UTC) - timedelta(seconds=until_seconds_ago)
        return TimeWindow(start=end - timedelta(seconds=seconds), end=end)

    def truth(self, window: TimeWindow) -> dict[str, checker.State]:
        """What a window truly holds now."""
        bounds = (int(moment.timestamp()) * MICRO for moment in (window.start, window.end))
        return checker.truth(self.platform.ledger(), from_us=next(bounds), until_us=next(bounds))

    async def read(self, window: TimeWindow) -> list[OrderPage]:
        """All pages of one pass."""
        return [
            page async for page in self.connector.iterate_pages(window, await self.connector.fetch_row_count(window))
        ]


@asynccontextmanager
async def running_connector(
    record: Capability | None = None, /, address: str = "", **scenario: Any
) -> AsyncIterator[RunningConnector]:
    """A stand-in after a scenario, and a connector with the record of its kind or with this one."""
    async with running_platforms() as platforms, GuardedClient(EgressGuardSettings(allow=["127.0.0.0/8"])) as http:
        platform = platforms.add(NUMBER, PlatformScenario.model_validate(scenario))
        kind, limiter, renewals = platform.scenario.kind, OpenLimiter(), list[bool]()

        async def read_credentials(renew: bool) -> Credentials:
            renewals.append(renew)
            return Credentials.model_validate(platform.credentials)

        address = address or platforms.url(NUMBER)
        account = Account(NUMBER, "shop-1", address)
        plain = PLAIN_MILLISECONDS if platform.scenario.milliseconds else PLAIN
        known = {"plain": plain.model_copy(update=SMALL_PAGES), **KNOWN_PLATFORMS}
        every = PlatformConnectorFactory(http, limiter)

        def again(answers: ReplayableAnswerLog, other: Capability | None = None) -> PlatformConnector:
            return every.build_connector(
                other or record or known[kind], account, read_credentials, rate=QUICK, answers=answers
            )

        yield RunningConnector(address, platform, again(ReplayableAnswerLog()), limiter, again, renewals)


def record_permits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of when each permit of this process is taken, by the monotonic clock."""
    wait, taken = RequestPermits.wait_for_permit, list[float]()

    async def wait_and_record(permits: RequestPermits, patience_seconds: float = PATIENCE_SECONDS) -> None:
        await wait(permits, patience_seconds)
        taken.append(permits._good_until - permits.held_seconds)

    monkeypatch.setattr(RequestPermits, "wait_for_permit", wait_and_record)
    return taken


def list_orders(pages: Sequence[OrderPage]) -> list[PlatformOrder]:
    """All that pages list."""
    return [order for page in pages for order in page.orders]


def newest_copies(pages: Sequence[OrderPage]) -> list[checker.Copy]:
    """The newest copy of each order on pages, as the checker expects it."""
    newest: dict[str, checker.Copy] = {}
    for order in list_orders(pages):
        modified_us = (order.modified_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        copy = checker.Copy(order.order_id, checker.State(modified_us, order.version))
        before = newest.get(order.order_id, copy)
        newest[order.order_id] = max(copy, before, key=lambda each: each.state)
    return list(newest.values())
