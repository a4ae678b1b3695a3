"""A plain platform: numbered pages of orders by their modification, a total, versions, and a clock of its own."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import partial

from domain.orders.access import AuthenticationMethod, PlatformAccess
from domain.orders.capability import (
    Capability,
    ClockCall,
    OrderQuery,
    OrderRowFields,
    Paging,
    PagingByNumberCursorTokenOrLink,
    TotalCall,
)
from domain.orders.declarations import DetailCall, RateLimit, TimeFormat, TimeNotation, TimeResolution
from sims.platforms import texts
from sims.platforms.clock import MICRO
from sims.platforms.dialects.base import Call, Dialect, Refusal, Reply, StandInRequest, json_reply
from sims.platforms.market import Market

SIZE_MAX = 1_000
ORDERS, CLOCK = "/orders", "/time"
VERSION_PARAMETER, VERSION_HEADER = "v", "X-Api-Version"
_VERSION = r"/(v\d+)(?=/)"
_FORM = (
    '{"id":%(id)d,"status":"%(status)b","created_at":"%(created)b","updated_at":"%(modified)b",'
    '"version":%(version)d,%(rest)b}'
)

PLAIN = Capability(
    kind="plain",
    query=OrderQuery(path=ORDERS, start="from", end="to", parameters={"sort": "-updated_at"}),
    paging=Paging(
        kind=PagingByNumberCursorTokenOrLink.NUMBER,
        parameter="page",
        size_parameter="page_size",
        size=SIZE_MAX,
        size_max=SIZE_MAX,
    ),
    total=TotalCall(value="$.total", parameters={"page": "1", "page_size": "1"}),
    clock=ClockCall(path=CLOCK, value="$.now_ms", time_format=TimeFormat(form=TimeNotation.EPOCH_MS)),
    rate=RateLimit(per_second=1_000, burst=10_000),
    rows=OrderRowFields(list="$.orders", id="$.id", modified="$.updated_at", version="$.version"),
    access=PlatformAccess(signing=AuthenticationMethod.HEADER, header="Authorization", prefix="Bearer "),
)
"""The capability that is declared of it."""

WHOLE = DetailCall(path="/orders/{id}", row="$.order")
ITEMS = DetailCall(path="/orders/{id}/items", row="$.items", into="items", next="$.next", next_parameter="after")
"""Calls for one order that may be declared."""

PLAIN_MILLISECONDS = PLAIN.model_copy(
    update={"rows": PLAIN.rows.model_copy(update={"time_format": TimeFormat(resolution=TimeResolution.MILLISECOND)})}
)
"""The same where orders have finer times than can be asked for."""


def _remove_version(path: str, separator: str = "/") -> str:
    return re.sub(rf"^/v\d+{separator}", "/", path)


class Plain(Dialect):
    """`GET /orders?from=…&to=…&page=…&page_size=…&sort=[-]updated_at`, both ends included."""

    def __init__(self, milliseconds: bool) -> None:
        super().__init__(milliseconds)
        self._row = texts.row(_FORM, texts.stamp("T", 0, "Z", milliseconds=milliseconds))

    def call(self, request: StandInRequest) -> Call | None:
        """Orders, one of them or its items, or the time; each of one version, where the scenario says so."""
        found: Call | None = {ORDERS: self._orders, CLOCK: self._clock}.get(_remove_version(request.path))
        segments = _remove_version("/" + "\0".join(request.segments), "\0")[1:].split("\0")
        match segments:
            case ["orders", name]:
                found = partial(self._order, name)
            case ["orders", name, "items"]:
                found = partial(self._items, name)
        return found and partial(self._of_version, found)

    def _of_version(self, call: Call, market: Market, request: StandInRequest) -> Reply:
        wanted, where = market.scenario.api_version, market.scenario.version_in
        named = re.match(_VERSION, request.path)
        sent = {
            "path": named[1] if named else "",
            "query": request.query.get(VERSION_PARAMETER, ""),
            "header": request.headers.get(VERSION_HEADER, ""),
        }
        if sent != {"path": "", "query": "", "header": "", where: wanted or ""}:
            raise Refusal(self.error(404, "refused", f"this platform answers version {wanted}, named by its {where}"))
        return call(market, request)

    def _order(self, name: str, market: Market, request: StandInRequest) -> Reply:
        return Reply(b'{"order":%b}' % self._render(market, self._number_of(name, market)))

    def _items(self, name: str, market: Market, request: StandInRequest) -> Reply:
        """Two on a page."""
        rows, place = texts.items(self._number_of(name, market)), self.whole(request.query, "after", 0)
        following = str(place + 2) if place + 2 < len(rows) else ""
        return Reply(f'{{"items":[{",".join(rows[place : place + 2])}],"next":"{following}"}}'.encode())

    def _number_of(self, name: str, market: Market) -> int:
        odd = re.match(r"№ (\d+)/", name)
        if market.scenario.odd_ids:
            number = int(odd[1]) if odd and texts.odd_id(int(odd[1])) == name else -1
        else:
            number = texts.number_of(int(name)) if name.isdigit() else -1
        if not 0 <= number < len(market.created):
            raise Refusal(self.error(404, "refused", f"there is no order {name!r}"))
        return number

    def _render(self, market: Market, number: int) -> bytes:
        row = self._row(market, number)
        if not market.scenario.odd_ids:
            return row
        return row.replace(b"%d" % texts.order_id(number), json.dumps(texts.odd_id(number)).encode(), 1)

    def is_clock(self, request: StandInRequest) -> bool:
        """A call of its own."""
        return _remove_version(request.path) == CLOCK

    def token(self, request: StandInRequest) -> str:
        """A bearer token."""
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """The status says it all."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return json_reply({"error": {"code": code, "message": message}}, status, headers)

    def _clock(self, market: Market, request: StandInRequest) -> Reply:
        return json_reply({"now_ms": market.now_us // 1_000})

    def _orders(self, market: Market, request: StandInRequest) -> Reply:
        query = request.query
        first_us = self._time(query["from"]) if "from" in query else 0
        last_us = self._time(query["to"]) if "to" in query else 1 << 60
        page, size = self.whole(query, "page", 1), self.whole(query, "page_size", 100, SIZE_MAX)
        size = min(size, market.scenario.faults.page_cap or size)
        window = self.bounds(market, first_us, last_us)
        offset = 0 if market.scenario.faults.ignore_page else (page - 1) * size
        cap = self.cap(market)
        if cap is not None:
            size = max(0, min(size, cap - offset))
        tell = market.descending if query.get("sort", "").startswith("-") else market.ascending
        rows = self.rows(market, tell(window, offset, size), self._render)
        return Reply(b'{"total":%d,"page":%d,"orders":[%b]}' % (self.count_total(market, window), page, rows))

    def _time(self, text: str) -> int:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Refusal(self.error(400, "refused", f"{text!r} is no time")) from None
        return int(moment.timestamp()) * MICRO + moment.microsecond
