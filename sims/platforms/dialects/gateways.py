"""Taobao and Pinduoduo: one address for all methods, signed parameters, errors with status 200, newest orders first."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Final

from sims.platforms import texts
from sims.platforms.clock import MICRO
from sims.platforms.dialects.base import KEY, SECRET, Call, Dialect, Query, Refusal, Reply, StandInRequest, json_reply
from sims.platforms.market import Market

BEIJING_MINUTES: Final = 480
_SPACED: Final = "%Y-%m-%d %H:%M:%S"
_RETRY = "This ban will last for {:g} more seconds"


class _Gateway(Dialect):
    """One address; a parameter names the method."""

    path: str
    method: str
    key: str
    session: str
    window_max_us: int
    calls: dict[str, str]
    form: str
    tolerance_us = 0
    """How far a request's time may be from ours; 0: any."""

    def __init__(self, milliseconds: bool) -> None:
        super().__init__(milliseconds)
        self._stamp = texts.stamp(" ", BEIJING_MINUTES, "")
        self._row = texts.row(self.form, self._stamp)

    def call(self, request: StandInRequest) -> Call | None:
        """By the method's name."""
        name = self.calls.get(request.query.get(self.method, "")) if request.path == self.path else None
        return getattr(self, name) if name else None

    def is_clock(self, request: StandInRequest) -> bool:
        """A method of its own."""
        return self.calls.get(request.query.get(self.method, "")) == "clock"

    def token(self, request: StandInRequest) -> str:
        """The session of a request whose sign fits."""
        query = dict(request.query)
        sign = query.pop("sign", "")
        text = SECRET + "".join(f"{name}{query[name]}" for name in sorted(query)) + SECRET
        fits = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper() == sign
        return query.get(self.session, "") if fits and query.get(self.key) == KEY else ""

    def clock(self, market: Market, request: StandInRequest) -> Reply:
        """The time in Beijing."""
        return json_reply({"time_get_response": {"time": self._stamp(market.now_us).decode()}})

    def orders(self, market: Market, request: StandInRequest) -> Reply:
        """One page, counted or with has_next."""
        first_us, last_us = self.parse_window(market, request.query)
        if not first_us <= last_us <= first_us + self.window_max_us:
            raise Refusal(self.error(200, "refused", f"the window must be at most {self.window_max_us // MICRO} s"))
        window = self.bounds(market, first_us, last_us)
        page, size = self.page(request.query)
        offset = 0 if market.scenario.faults.ignore_page else (page - 1) * size
        numbers = market.descending(window, offset, size)
        rows = self.rows(market, numbers, self._row)
        if request.query.get("use_has_next") == "true":
            return Reply(
                self.render_list(rows, b'"has_next":%b' % (b"true" if offset + size < len(window) else b"false"))
            )
        return Reply(self.render_list(rows, b'"%b":%d' % (self.total_name, self.count_total(market, window))))

    total_name: bytes

    @abstractmethod
    def parse_window(self, market: Market, query: Query) -> tuple[int, int]:
        """The window of a request."""

    @abstractmethod
    def page(self, query: Query) -> tuple[int, int]:
        """Its page and the size of it."""

    @abstractmethod
    def render_list(self, rows: bytes, end: bytes) -> bytes:
        """The answer around the rows."""


class Taobao(_Gateway):
    """`taobao.trades.sold.increment.get`: windows of a day, orders that are listed only in part."""

    path = "/router/rest"
    method = "method"
    key = "app_key"
    session = "session"
    window_max_us = 86_400 * MICRO
    total_name = b"total_results"
    calls = {  # noqa: RUF012
        "taobao.trades.sold.increment.get": "orders",
        "taobao.time.get": "clock",
        "taobao.trade.fullinfo.get": "detail",
    }
    form = '{"tid":%(id)d,"status":"%(status)b","modified":"%(modified)b","payment":"12.10","rev":%(version)d}'

    def parse_window(self, market: Market, query: Query) -> tuple[int, int]:
        """Times in Beijing, both ends included."""
        first = self.moment(query, "start_modified", _SPACED, BEIJING_MINUTES)
        return first, self.moment(query, "end_modified", _SPACED, BEIJING_MINUTES)

    def page(self, query: Query) -> tuple[int, int]:
        """Forty rows unless asked otherwise."""
        return self.whole(query, "page_no", 1), self.whole(query, "page_size", 40, 100)

    def render_list(self, rows: bytes, end: bytes) -> bytes:
        """Without orders the list is left out."""
        trades = b'"trades":{"trade":[%b]},' % rows if rows else b""
        return b'{"trades_sold_increment_get_response":{%b%b}}' % (trades, end)

    def detail(self, market: Market, request: StandInRequest) -> Reply:
        """One order, whole."""
        number = texts.number_of(self.whole(request.query, "tid", 0, 10**18))
        if not 0 <= number < len(market.created) or not market.shown.version[number]:
            raise Refusal(self.error(200, "refused", "isv.trade-not-exist"))
        row = self._row(market, number)[:-1] + b"," + texts.tail(number % 64) + b"}"
        return Reply(b'{"trade_fullinfo_get_response":{"trade":%b}}' % row)

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """The answer is good and the error inside; only a broken gateway has a status."""
        codes = {"busy": 7, "expired": 27, "refused": 41, "broken": 10}
        text = message if retry_after is None else f"App Call Limited: {_RETRY.format(retry_after)}"
        content = {"error_response": {"code": codes[code], "msg": text, "sub_msg": message}}
        return json_reply(content, 502 if code == "broken" else 200)


class Pinduoduo(_Gateway):
    """`pdd.order.number.list.increment.get`: windows of half an hour that end three minutes ago."""

    path = "/api/router"
    method = "type"
    key = "client_id"
    session = "access_token"
    window_max_us = 1_800 * MICRO
    newest_us = 180 * MICRO
    tolerance_us = 600 * MICRO
    total_name = b"total_count"
    calls = {"pdd.order.number.list.increment.get": "orders", "pdd.time.get": "clock"}  # noqa: RUF012
    form = '{"order_sn":"%(id)d","updated_at":"%(modified)b","order_status":"%(status)b","rev":%(version)d,%(rest)b}'

    def parse_window(self, market: Market, query: Query) -> tuple[int, int]:
        """Seconds since 1970; a request of another time is refused, as one that asks for the last minutes."""
        if abs(self.whole(query, "timestamp", 0, 10**11) * MICRO - market.now_us) > self.tolerance_us:
            raise Refusal(self.error(200, "refused", "timestamp is not within 10 minutes"))
        first, last = self.whole(query, "start_updated_at", 0, 10**11), self.whole(query, "end_updated_at", 0, 10**11)
        if last * MICRO > market.now_us - self.newest_us:
            raise Refusal(self.error(200, "refused", "end_updated_at must be 3 minutes before now"))
        return first * MICRO, last * MICRO

    def page(self, query: Query) -> tuple[int, int]:
        """A hundred rows at most."""
        return self.whole(query, "page", 1), self.whole(query, "page_size", 100, 100)

    def render_list(self, rows: bytes, end: bytes) -> bytes:
        """Always with a list."""
        return b'{"order_sn_increment_get_response":{"order_sn_list":[%b],%b}}' % (rows, end)

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """The answer is good and the error inside."""
        codes = {"busy": 70031, "expired": 10019, "refused": 10001, "broken": 52001}
        content = {"error_response": {"error_code": codes[code], "error_msg": message}}
        return json_reply(content, 502 if code == "broken" else 200)
