"""A plain platform: numbered pages of orders by their modification, a total, versions, and a clock of its own."""

from __future__ import annotations

from datetime import datetime

from domain.orders.capability import (
    Access,
    Capability,
    Clock,
    Direction,
    Paging,
    PagingKind,
    Query,
    RateLimit,
    Rows,
    Signing,
    Total,
)
from domain.orders.moments import Form, Moments, Resolution
from sims.platforms import texts
from sims.platforms.clock import MICRO
from sims.platforms.dialects.base import Call, Dialect, Refusal, Reply, Request, json_reply
from sims.platforms.market import Market

SIZE_MAX = 1_000
ORDERS, CLOCK = "/orders", "/time"
_FORM = (
    '{"id":%(id)d,"status":"%(status)b","created_at":"%(created)b","updated_at":"%(modified)b",'
    '"version":%(version)d,%(rest)b}'
)

PLAIN = Capability(
    kind="plain",
    query=Query(path=ORDERS, start="from", end="to", parameters={"sort": "-updated_at"}),
    paging=Paging(
        kind=PagingKind.NUMBER,
        direction=Direction.BACKWARD,
        parameter="page",
        size_parameter="page_size",
        size=SIZE_MAX,
        size_max=SIZE_MAX,
    ),
    total=Total(value="$.total", parameters={"page": "1", "page_size": "1"}),
    clock=Clock(path=CLOCK, value="$.now_ms", moments=Moments(form=Form.EPOCH_MS)),
    rate=RateLimit(per_second=1_000, burst=10_000),
    rows=Rows(list="$.orders", id="$.id", modified="$.updated_at", version="$.version"),
    access=Access(signing=Signing.HEADER, header="Authorization", prefix="Bearer "),
)
"""What a connector is told of it."""

PLAIN_MILLISECONDS = PLAIN.model_copy(
    update={"rows": PLAIN.rows.model_copy(update={"moments": Moments(told=Resolution.MILLISECOND)})}
)
"""The same where orders have finer times than can be asked for."""


class Plain(Dialect):
    """`GET /orders?from=…&to=…&page=…&page_size=…&sort=[-]updated_at`, both ends included."""

    def __init__(self, milliseconds: bool) -> None:
        super().__init__(milliseconds)
        self._row = texts.row(_FORM, texts.stamp("T", 0, "Z", milliseconds=milliseconds))

    def call(self, request: Request) -> Call | None:
        """Orders, or the time."""
        return {ORDERS: self._orders, CLOCK: self._clock}.get(request.path)

    def is_clock(self, request: Request) -> bool:
        """A call of its own."""
        return request.path == CLOCK

    def token(self, request: Request) -> str:
        """A bearer token."""
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """The status says it all."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return json_reply({"error": {"code": code, "message": message}}, status, headers)

    def _clock(self, market: Market, request: Request) -> Reply:
        return json_reply({"now_ms": market.now_us // 1_000})

    def _orders(self, market: Market, request: Request) -> Reply:
        query = request.query
        first_us = self._time(query["from"]) if "from" in query else 0
        last_us = self._time(query["to"]) if "to" in query else 1 << 60
        page, size = self.whole(query, "page", 1), self.whole(query, "page_size", 100, SIZE_MAX)
        window = self.bounds(market, first_us, last_us)
        offset = 0 if market.scenario.faults.ignore_page else (page - 1) * size
        cap = self.cap(market)
        if cap is not None:
            size = max(0, min(size, cap - offset))
        tell = market.descending if query.get("sort", "").startswith("-") else market.ascending
        rows = self.rows(market, tell(window, offset, size), self._row)
        return Reply(b'{"total":%d,"page":%d,"orders":[%b]}' % (self.told_total(market, window), page, rows))

    def _time(self, text: str) -> int:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Refusal(self.error(400, "refused", f"{text!r} is no time")) from None
        return int(moment.timestamp()) * MICRO + moment.microsecond
