"""Try a declaration of a platform: read one page by it, and say what was understood, before anything is kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import AwareDatetime, Field

from api.http.models import Response
from api.http.routes import Call, RouteAccess
from api.orders.configuration import require_existing_credentials_file, resolve_declared_capability
from api.orders.context import routes
from api.orders.requests import TryPlatformRequest
from clients.platforms import OrderPage, PlatformConnector, PlatformConnectorFactory, PlatformFailure
from clients.platforms.credentials import build_credentials_reader
from domain.faults import Invalid
from domain.limits import LimitDecision, RateDemand, SlotDemand
from domain.orders.access import Account
from domain.orders.capability import Capability
from domain.orders.windows import TimeWindow, floor_to_second
from infra.database import Database
from infra.limits import DatabaseLimiter

TIMEOUT_SECONDS: Final = 25.0
SPAN: Final = timedelta(hours=1)
ROWS_SHOWN: Final = 20
ROW_CHARACTERS: Final = 4_000
ACCOUNT_BYTES: Final = 8
NUMBER: Final = "try"
"""Stands for the name of the platform, which it does not have yet."""


class RowParsedInTrial(Response):
    """A row as it was understood."""

    order_id: str
    modified_at: AwareDatetime
    version: int = Field(description="0 where the declaration names none")
    raw: str = Field(description="the row as the platform wrote it, its first 4,000 characters")


class TriedPageResponse(Response):
    """What one page was understood as."""

    start: AwareDatetime
    end: AwareDatetime
    platform_now: AwareDatetime | None = Field(description="the platform's clock; null where it could not be read")
    total: int | None = Field(description="how many rows the platform says the time has; null where it does not say")
    rows: int = Field(description="rows of the page")
    items: list[RowParsedInTrial] = Field(description="the first 20 of them")
    problems: list[str] = Field(description="what the declaration, the account or the platform has wrong")


@routes.post(
    "/v1/platforms:try",
    access=RouteAccess.ADMIN,
    problems={
        "platform_invalid": Invalid,
        "config_invalid": Invalid,
        "address_denied": Invalid,
        "invalid_url": Invalid,
    },
)
async def try_platform(call: Call, body: TryPlatformRequest) -> TriedPageResponse:
    """Read one page of a platform with this declaration; nothing is kept.

    The answer says what was understood, and in sentences what was not. It takes at most 25 seconds and three requests
    of the account's rate: for the clock, the total and the page.
    """
    capability = resolve_declared_capability(call, body)
    settings = call.services.settings.orders
    require_existing_credentials_file(settings.credentials_folder, body.credentials)
    # Its own: a breaker or permits of an account that is wrong must not be those of one that is right.
    limiter = _LimiterOfOneTriedAccount(call.services.database, body)
    connector = PlatformConnectorFactory(call.services.http, limiter).build_connector(
        capability,
        Account(NUMBER, body.shop, body.base_url),
        build_credentials_reader(settings.credentials_folder, body.credentials),
    )
    trial = _PlatformTrial(connector)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await trial.request_clock_total_and_first_page(body.start, body.end)
    except TimeoutError:
        trial.problems.append(f"Not everything was answered within {TIMEOUT_SECONDS:g} seconds.")
    return trial.build_response()


class _LimiterOfOneTriedAccount(DatabaseLimiter):
    """Counts the requests of trials by the account: those of one at a slow rate hold up no other."""

    def __init__(self, database: Database, body: TryPlatformRequest) -> None:
        super().__init__(database)
        account = "\0".join((body.kind, body.base_url, body.shop)).encode()
        self._account = hashlib.blake2b(account, digest_size=ACCOUNT_BYTES).hexdigest()

    async def take_all_or_none(self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]) -> list[LimitDecision]:
        """See base class."""
        own = [replace(rate, bucket=f"{rate.bucket}:{self._account}") for rate in rates]
        return await super().take_all_or_none(own, slots)


class _PlatformTrial:
    """Reads clock, total and first page, and goes on after what fails."""

    def __init__(self, connector: PlatformConnector) -> None:
        self._connector = connector
        self._now: datetime | None = None
        self._window = TimeWindow(start=datetime.fromtimestamp(0, UTC), end=datetime.fromtimestamp(1, UTC))
        self._total: int | None = None
        self._page: OrderPage | None = None
        self.problems: list[str] = []

    async def request_clock_total_and_first_page(self, start: datetime | None, end: datetime | None) -> None:
        """Make the requests."""
        capability = self._connector.capability
        self._window = _choose_trial_window(capability, start, end, datetime.now(UTC))
        try:
            self._now = await self._connector.fetch_platform_time()
        except PlatformFailure as failure:
            self.problems.append(f"The clock could not be read: {failure}")
        self._window = _choose_trial_window(capability, start, end, self._now or datetime.now(UTC))
        try:
            self._total = await self._connector.fetch_row_count(self._window)
        except PlatformFailure as failure:
            self.problems.append(f"The total could not be read: {failure}")
        try:
            self._page = await self._connector.fetch_first_page(self._window)
        except PlatformFailure as failure:
            self.problems.append(f"The page could not be read: {failure}")
            return
        self._total = self._total if self._page.total is None else self._page.total
        self.problems += _list_doubts_about_trial_page(self._page, self._total)

    def build_response(self) -> TriedPageResponse:
        """Return what is known so far."""
        orders = () if self._page is None else self._page.orders
        return TriedPageResponse(
            start=self._window.start,
            end=self._window.end,
            platform_now=self._now,
            total=self._total,
            rows=len(orders),
            items=[
                RowParsedInTrial(
                    order_id=order.order_id,
                    modified_at=order.modified_at,
                    version=order.version,
                    raw=order.raw.decode(errors="replace")[:ROW_CHARACTERS],
                )
                for order in orders[:ROWS_SHOWN]
            ],
            problems=self.problems,
        )


def _choose_trial_window(
    capability: Capability, start: datetime | None, end: datetime | None, now: datetime
) -> TimeWindow:
    """Return the time that is read: what is left out, within what the platform answers."""
    longest = capability.query.window_max_seconds
    span = SPAN if longest is None else min(SPAN, timedelta(seconds=max(1, int(longest))))
    latest = capability.compute_latest_answerable_window_end(now)
    last = floor_to_second(end or (latest if start is None else min(latest, start + span)))
    first = floor_to_second(start or last - span)
    return TimeWindow(start=first, end=max(last, first + timedelta(seconds=1)))


def _list_doubts_about_trial_page(page: OrderPage, total: int | None) -> Iterator[str]:
    """Say what a page has that a right declaration would not bring."""
    rows = len(page.orders)
    if not rows:
        yield "The page has no rows: choose a time with orders, to see whether they are understood."
    if page.outside:
        yield (
            f"{page.outside} of {rows} rows have a time outside of the window: the platform filters by another time "
            "than `rows.modified` names, or `query.time_format` and `rows.time_format` name another zone or format."
        )
    if page.undated:
        yield f"{page.undated} of {rows} rows have no time at `rows.modified`: they would count as the oldest."
    doubled = [order_id for order_id, count in Counter(each.order_id for each in page.orders).items() if count > 1]
    if doubled:
        yield f"{len(doubled)} ids come more than once, the first is {doubled[0]!r}: `rows.id` may name another field."
    if total is not None and total < rows:
        yield f"The platform counts {total} rows and lists {rows}: `total` may name another number."
