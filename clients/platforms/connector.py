"""Connectors: what a platform lists of a window, requested as its capability declares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from urllib.parse import urljoin

import msgspec

from clients.http import GuardedClient, parse_http_date
from clients.platforms import pagination
from clients.platforms.answers import InclusiveQueryTimes, OrderPage, OrderParser, ReplayableAnswerLog
from clients.platforms.client import ANSWER_MAX_BYTES, AnswerWithValues, PlatformClient
from clients.platforms.failures import CredentialsRefused, InconsistentAnswers, PlatformRefused, TooManyRows
from clients.platforms.permits import (
    AttemptTimeBudget,
    DailyQuotaOfAllPlatforms,
    PlatformStateSharedByConnectors,
    RequestPermits,
    build_detail_bucket_name,
)
from domain.orders.access import Account, CredentialsReader
from domain.orders.capability import NEXT, TOTAL, Capability, PagingByNumberCursorTokenOrLink, PlatformOrder
from domain.orders.declarations import DetailCall, RateLimit
from domain.orders.jsonpath import JsonPath, JsonReader
from infra.limits import DatabaseLimiter

_TIME, _ROW = "time", "row"
DETAIL_PAGES_MAX: Final = 1_000
"""Limit of the pages of one order's list."""


class TimeRangeWithExclusiveEnd(Protocol):
    """A time whose start is included and whose end is not."""

    @property
    def start(self) -> datetime:
        """The first instant."""

    @property
    def end(self) -> datetime:
        """The first instant after it."""


class PlatformConnector:
    """Reads one account."""

    def __init__(self, client: PlatformClient, capability: Capability, account: Account) -> None:
        self.capability = capability
        self.budget = client.budget
        self._client = client
        self._fixed = {
            **capability.query.parameters,
            **({shop: account.shop} if (shop := capability.query.shop) else {}),
        }
        self._rows = OrderParser(capability, account)
        self._counts, self._details = _build_count_and_detail_readers(capability, self._rows)

    @property
    def clock_skew(self) -> timedelta:
        """How far the platform's clock is ahead of ours, by its last answer."""
        return self._client.clock_skew

    async def fetch_platform_time(self) -> datetime:
        """Return the platform's time, rounded down where it is coarse."""
        clock = self.capability.clock
        if clock.value is None:
            answer = await self._client.request_headers(clock.path, clock.parameters, takes_permit=clock.counted)
            if (date := parse_http_date(answer.headers.get("Date", ""))) is None:
                raise InconsistentAnswers(
                    f"{self._client} told no time in the header Date of {clock.path}.",
                    "Name a call that does in its record.",
                )
            return date
        reader = JsonReader({_TIME: (JsonPath.parse(clock.value), int | str), **self.capability.build_error_paths()})
        # A cycle must not fail for want of a time because other requests fail; an answer closes the breaker.
        response = await self._client.request_values(
            clock.path, clock.parameters, reader, is_probe=True, takes_permit=clock.counted
        )
        text = response.values[_TIME]
        try:
            # Of an hour that is told twice, the time that is nearer to ours.
            moment = clock.time_format.build_time_parser()(text, datetime.now(UTC) + timedelta(minutes=30))
        except (TypeError, ValueError, OverflowError):
            raise InconsistentAnswers(
                f"{self._client} told the time {text!r} at {clock.path}.", "Mend its record."
            ) from None
        self._client.set_clock_skew_from_platform_time(moment)
        return moment

    async def fetch_row_count(self, window: TimeRangeWithExclusiveEnd) -> int | None:
        """Return how many rows a window has, or at least has; None where the platform does not count."""
        total, query = self.capability.total, self.capability.query
        if total is None:
            return None
        parameters = {**self._build_query_parameters(self.compute_query_bounds(window), page=None), **total.parameters}
        response = await self._client.request_values(total.path or query.path, parameters, self._counts)
        count = self._rows.parse_total(response.answer, response.values)
        if count is None:
            raise InconsistentAnswers(f"{self._client} told no total where its record names one.", "Mend the record.")
        return count

    async def iterate_pages(self, window: TimeRangeWithExclusiveEnd, total: int | None) -> AsyncIterator[OrderPage]:
        """Iterate over the pages of a window, in a sequence in which a row that leaves it is not skipped.

        Args:
            window: Which orders are requested.
            total: What `count` returned just before.

        Raises:
            TooManyRows: The platform withholds the window's last rows; what came so far is right but incomplete.
            PlatformFailure: A request failed.
        """
        paging, bounds = self.capability.paging, self.compute_query_bounds(window)
        match paging.kind:
            case PagingByNumberCursorTokenOrLink.NUMBER:
                if paging.rows_max is not None and total is not None and total > paging.rows_max:
                    raise self._build_too_many_rows(total)
                walk = pagination.iterate_numbered_pages(
                    self._build_numbered_page_reader(bounds),
                    paging,
                    total,
                    lambda: paging.size in self._client.uncapped_page_sizes,
                )
            case PagingByNumberCursorTokenOrLink.LINK:
                walk = pagination.iterate_pages_by_link(self._build_link_page_reader(bounds))
            case PagingByNumberCursorTokenOrLink.CURSOR | PagingByNumberCursorTokenOrLink.TOKEN:
                walk = pagination.iterate_pages_by_token(self._build_token_page_reader(bounds))
        rows = 0
        async for page in walk:
            yield page
            rows += 0 if page.is_repeated else len(page.orders)
            # Even if the total is the very same: many platforms count no further than they list.
            if paging.rows_max is not None and rows >= paging.rows_max:
                raise self._build_too_many_rows(rows)

    async def fetch_first_page(self, window: TimeRangeWithExclusiveEnd) -> OrderPage:
        """Request the first page of a window by itself."""
        bounds, paging = self.compute_query_bounds(window), self.capability.paging
        match paging.kind:
            case PagingByNumberCursorTokenOrLink.NUMBER:
                step = await self._build_numbered_page_reader(bounds)(0, paging.first)
            case PagingByNumberCursorTokenOrLink.LINK:
                step = await self._build_link_page_reader(bounds)(0, None)
            case PagingByNumberCursorTokenOrLink.CURSOR | PagingByNumberCursorTokenOrLink.TOKEN:
                step = await self._build_token_page_reader(bounds)(0, None)
        return step.page

    @property
    def answer_log(self) -> ReplayableAnswerLog:
        """The answers received so far."""
        return self._client.answers

    def compute_query_bounds(self, window: TimeRangeWithExclusiveEnd) -> InclusiveQueryTimes:
        """Return the inclusive bounds of a query that leaves out no order of a window."""
        return InclusiveQueryTimes(*self.capability.compute_query_bounds(window.start, window.end))

    async def fetch_details(self, part: PlatformOrder) -> tuple[PlatformOrder, datetime]:
        """Fetch the details of an order, and return it with the time of the request.

        An order without a time keeps the one that it was listed with.
        """
        detail, order_id = self.capability.detail, part.order_id
        if detail is None:
            raise ValueError(f"The record of {self.capability.kind} names no call that tells more of an order.")
        if detail.next is not None:
            return await self._fetch_paged_details(detail, part)
        response = await self._request_details(detail, order_id, None)
        row = response.values[_ROW]
        if row is None:
            raise PlatformRefused(
                f"{self._client} has no order {order_id}, which it told before.", "Look into it there."
            )
        if detail.into:
            return self._rows.insert_details_into_raw_order(part, detail.into, row), response.asked_at
        whole = self._rows.parse_order(row, part.modified_at, response.asked_at)
        if whole.order_id != order_id:
            raise InconsistentAnswers(
                f"{self._client} told order {whole.order_id} when asked for {order_id}.",
                "Mend `detail` in its record.",
            )
        return whole, response.asked_at

    async def _fetch_paged_details(self, detail: DetailCall, part: PlatformOrder) -> tuple[PlatformOrder, datetime]:
        """Fetch an order with a list that has pages; its time is that of the first page's request."""
        rows, seen, size = list[msgspec.Raw](), set[str](), 0
        first: datetime | None = None
        token: str | None = None
        while True:
            response = await self._request_details(detail, part.order_id, token)
            first = first or response.asked_at
            if response.values[_ROW] is None:
                raise InconsistentAnswers(
                    f"{self._client} told no list at {detail.row} of order {part.order_id}.",
                    "Mend `detail` in its record.",
                )
            rows += response.values[_ROW]
            size += len(response.answer.body)
            if response.values[NEXT] in (None, ""):
                return self._rows.insert_details_into_raw_order(part, detail.into, msgspec.json.encode(rows)), first
            token = str(response.values[NEXT])
            if token in seen:
                raise InconsistentAnswers(
                    f"{self._client} leads in a circle over the pages of order {part.order_id}.",
                    "Read it again; if it stays so, ask the platform's owner.",
                    may_pass=True,
                )
            seen.add(token)
            if len(seen) >= DETAIL_PAGES_MAX or size > ANSWER_MAX_BYTES:
                raise InconsistentAnswers(
                    f"{self._client} leads to ever more pages of order {part.order_id}: {len(seen):,} of {size:,} "
                    f"bytes so far, of at most {DETAIL_PAGES_MAX:,} of {ANSWER_MAX_BYTES:,} bytes.",
                    "Mend `detail` in its record, or ask the platform's owner.",
                )

    async def _request_details(self, detail: DetailCall, order_id: str, token: str | None) -> AnswerWithValues:
        try:
            path = detail.build_path(order_id)
        except ValueError as error:
            raise InconsistentAnswers(f"{self._client} told an order that cannot be asked for. {error}") from None
        try:
            return await self._client.request_values(
                path, detail.build_parameters(order_id, token), self._details, is_detail=True
            )
        except CredentialsRefused:
            raise
        except PlatformRefused as refused:
            raise PlatformRefused(
                f"{refused.message} It was asked for order {order_id}.",
                "Where it refuses this order alone, look into it there; else mend `detail` in its record, or the "
                "account's rights.",
            ) from None

    def _build_query_parameters(self, bounds: InclusiveQueryTimes, *, page: str | None) -> dict[str, str]:
        query, paging = self.capability.query, self.capability.paging
        return {
            **self._fixed,
            query.start: query.time_format.format_time(bounds.first),
            query.end: query.time_format.format_time(bounds.last),
            paging.size_parameter: str(paging.size),
            **({} if page is None else {paging.parameter: page}),
        }

    def _build_too_many_rows(self, rows: int) -> TooManyRows:
        return TooManyRows(
            f"{self._client} holds {rows:,} rows or more in the window and tells at most "
            f"{self.capability.paging.rows_max:,}.",
            "Split the window; where it is too short for that, lower `overlap`, whose seconds are read with it.",
            rows=rows,
        )

    def _build_numbered_page_reader(self, bounds: InclusiveQueryTimes) -> pagination.NumberedPageReader:
        async def request_numbered_page(place: int, number: int) -> pagination.PageWithNextToken:
            response = await self._client.request_values(
                self.capability.query.path, self._build_query_parameters(bounds, page=str(number)), self._rows.reader
            )
            page = self._rows.parse_page(place, response.answer, response.values, bounds, response.asked_at)
            if len(page.orders) >= self.capability.paging.size:
                self._client.uncapped_page_sizes.add(self.capability.paging.size)
            return pagination.PageWithNextToken(page, self._rows.parse_has_more(response.values))

        return request_numbered_page

    def _build_token_page_reader(self, bounds: InclusiveQueryTimes) -> pagination.TokenPageReader:
        query, paging = self.capability.query, self.capability.paging

        async def request_page_of_token(place: int, token: str | None) -> pagination.PageWithNextToken:
            parameters = self._build_query_parameters(bounds, page=token)
            if token is not None and paging.kind is PagingByNumberCursorTokenOrLink.TOKEN:
                parameters = {**self._fixed, paging.parameter: token}
            response = await self._client.request_values(query.path, parameters, self._rows.reader)
            page = self._rows.parse_page(place, response.answer, response.values, bounds, response.asked_at)
            following: Any = response.values[NEXT]
            more = self._rows.parse_has_more(response.values)
            if following in (None, ""):
                self._require_no_more(more)
                return pagination.PageWithNextToken(page, more)
            # That a full page is the last one is not believed while it names another: if it is, that one is empty.
            is_full = len(page.orders) >= paging.size
            is_last = more is False and (not is_full or str(following) == token)
            return pagination.PageWithNextToken(page, more, None if is_last else str(following))

        return request_page_of_token

    def _build_link_page_reader(self, bounds: InclusiveQueryTimes) -> pagination.TokenPageReader:
        query = self.capability.query

        async def request_first_or_linked_page(place: int, link: str | None) -> pagination.PageWithNextToken:
            address = link or self._client.build_address(query.path)
            if link is None:
                response = await self._client.request_values(
                    query.path, self._build_query_parameters(bounds, page=None), self._rows.reader
                )
            else:
                response = await self._client.request_link(link, self._rows.reader)
            page = self._rows.parse_page(place, response.answer, response.values, bounds, response.asked_at)
            following = pagination.find_next_link(response.answer.headers.getall("Link", []))
            if following is None:
                self._require_no_more(self._rows.parse_has_more(response.values))
                return pagination.PageWithNextToken(page, None)
            try:
                return pagination.PageWithNextToken(page, None, urljoin(address, following))
            except ValueError:
                raise InconsistentAnswers(
                    f"{self._client} named an address of its next page that cannot be read: {following[:300]!r}.",
                    "Ask the platform's owner.",
                ) from None

        return request_first_or_linked_page

    def _require_no_more(self, has_more: bool | None) -> None:
        """Refuse a page that leads nowhere, and says that more follow: it is not the end of the window."""
        if has_more:
            raise InconsistentAnswers(
                f"{self._client} says that more orders follow, and does not lead to them.",
                "Read it again; if it stays so, mend `paging` in its record.",
                may_pass=True,
            )


def _build_count_and_detail_readers(capability: Capability, rows: OrderParser) -> tuple[JsonReader, JsonReader]:
    """Build the readers of answers to a count and to a request for one order; they are used for every answer."""
    total, detail, errors = capability.total, capability.detail, capability.build_error_paths()
    counts = rows.reader
    if total and total.path and total.value:
        counts = JsonReader({TOTAL: (JsonPath.parse(total.value), int | str), **errors})
    if detail is None:
        return counts, counts
    wanted: dict[str, tuple[JsonPath, Any]] = {_ROW: (JsonPath.parse(detail.row), msgspec.Raw)}
    if detail.next is not None:
        wanted |= {
            _ROW: (JsonPath.parse(detail.row), list[msgspec.Raw]),
            NEXT: (JsonPath.parse(detail.next), int | str),
        }
    return counts, JsonReader({**wanted, **errors})


class PlatformConnectorFactory:
    """Builds connectors. A process has one, so that all its connectors to a platform share permits."""

    def __init__(self, http: GuardedClient, limiter: DatabaseLimiter) -> None:
        self._http = http
        self._limiter = limiter
        self._gates: dict[str, PlatformStateSharedByConnectors] = {}

    def build_connector(
        self,
        capability: Capability,
        account: Account,
        read_credentials: CredentialsReader,
        *,
        rate: RateLimit | None = None,
        answers: ReplayableAnswerLog | None = None,
        budget: AttemptTimeBudget | None = None,
        quota: DailyQuotaOfAllPlatforms | None = None,
    ) -> PlatformConnector:
        """Build a connector for one piece of work.

        Args:
            rate: The configured rate, by default the platform's.
            quota: The quota of the platform's project, by default none.
            answers: Answers of earlier attempts.
            budget: The time budget, by default unlimited with short waits.
        """
        capability = capability.put_version_into_paths_and_parameters()
        gate = self._get_or_create_shared_state(account, rate or capability.rate, capability.detail, quota)
        client = PlatformClient(
            self._http,
            gate,
            capability,
            account,
            read_credentials,
            answers or ReplayableAnswerLog(),
            budget or AttemptTimeBudget(),
        )
        return PlatformConnector(client, capability, account)

    def _get_or_create_shared_state(
        self, account: Account, rate: RateLimit, detail: DetailCall | None, quota: DailyQuotaOfAllPlatforms | None
    ) -> PlatformStateSharedByConnectors:
        platform, gate = account.platform, self._gates.get(account.platform)
        if gate is None or gate.base_url != account.base_url:
            permits = RequestPermits(self._limiter, platform, rate, quota=quota)
            gate = self._gates[platform] = PlatformStateSharedByConnectors(account.base_url, permits, permits)
        elif (gate.permits.rate, gate.permits.quota) != (rate, quota):
            gate.permits = RequestPermits(self._limiter, platform, rate, quota=quota)
        if detail is None or detail.rate is None:
            gate.details = gate.permits
            return gate
        apart = detail.rate.model_copy(update={"per_day": rate.per_day})
        if gate.details is gate.permits or (gate.details.rate, gate.details.quota) != (apart, quota):
            gate.details = RequestPermits(
                self._limiter, platform, apart, bucket=build_detail_bucket_name(platform), quota=quota
            )
        return gate
