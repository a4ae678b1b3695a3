"""Shopify and WooCommerce: shops that speak plain HTTP, one with links, one with numbered pages by id."""

from __future__ import annotations

from base64 import b64decode
from functools import partial
from typing import Final
from urllib.parse import urlencode

from sims.platforms import texts
from sims.platforms.dialects.base import (
    KEY,
    Call,
    Dialect,
    Query,
    Refusal,
    Reply,
    StandInRequest,
    decode_token,
    encode_token,
    json_reply,
)
from sims.platforms.market import Market, Range

_ADMIN: Final = "/admin/api"
_VERSION: Final = "2025-01"
_UTC: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAIVE: Final = "%Y-%m-%dT%H:%M:%S"


class Shopify(Dialect):
    """`orders.json`: both ends included, links to the next page, nothing behind 25,000 rows, counts up to 25,001."""

    rows_max = 25_000

    def __init__(self, milliseconds: bool) -> None:
        super().__init__(milliseconds)
        form = '{"id":%(id)d,"updated_at":"%(modified)b","financial_status":"%(status)b","rev":%(version)d,%(rest)b}'
        # A zone other than UTC, as shops have it.
        self._row = texts.row(form, texts.stamp("T", -300, "-05:00"))

    def call(self, request: StandInRequest) -> Call | None:
        """Orders, their count, or the shop itself."""
        calls: dict[str, Call] = {
            "orders.json": self._orders,
            "orders/count.json": self._count,
            "shop.json": lambda market, request: json_reply({"shop": {"id": 1}}),
        }
        version, _, rest = request.path.removeprefix(f"{_ADMIN}/").partition("/")
        found = calls.get(rest)
        return found and partial(self._of_version, version, found)

    def _of_version(self, version: str, call: Call, market: Market, request: StandInRequest) -> Reply:
        if version != (market.scenario.api_version or _VERSION):
            raise Refusal(self.error(404, "refused", f"there is no version {version}"))
        return call(market, request)

    def token(self, request: StandInRequest) -> str:
        """In a header."""
        return request.headers.get("X-Shopify-Access-Token", "")

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """A status and a sentence."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:.1f}"}
        return json_reply({"errors": message}, status, headers)

    def _window(self, market: Market, query: Query) -> Range:
        first_us = self.moment(query, "updated_at_min", _UTC)
        return self.bounds(market, first_us, self.moment(query, "updated_at_max", _UTC))

    def _count(self, market: Market, request: StandInRequest) -> Reply:
        total = self.count_total(market, self._window(market, request.query))
        return json_reply({"count": min(total, (self.cap(market) or total) + 1)})

    def _orders(self, market: Market, request: StandInRequest) -> Reply:
        if "page_info" in request.query:
            return self._page(market, request, self._decode(market, request.query["page_info"]))
        if request.query.get("status") != "any":
            raise Refusal(self.error(400, "refused", "this stand-in tells orders of any status only"))
        first_us = self.moment(request.query, "updated_at_min", _UTC)
        return self._page(market, request, [first_us, self.moment(request.query, "updated_at_max", _UTC), -1, 0, 0])

    def _decode(self, market: Market, token: str) -> list[int]:
        try:
            content = decode_token(token)
        except (ValueError, TypeError):
            raise Refusal(self.error(400, "refused", "Invalid value for page_info parameter")) from None
        return content

    def _page(self, market: Market, request: StandInRequest, walk: list[int]) -> Reply:
        first_us, last_us, key, told, page = walk
        window = self.bounds(market, first_us, last_us)
        cap, size = self.cap(market) or 10**9, self.whole(request.query, "limit", 50, 250)
        numbers = market.after(window, key, max(0, min(size, cap - told)))
        told += len(numbers)
        headers = {}
        if len(numbers) == size and told < cap:
            here, following = page + 1, [first_us, last_us, market.key(numbers[-1]), told, page + 1]
            if here == market.scenario.faults.repeat_token_at:
                following = walk
            parameters = urlencode({"limit": size, "page_info": encode_token(following)})
            headers["Link"] = f'<{request.base}{request.path}?{parameters}>; rel="next"'
        return Reply(b'{"orders":[%b]}' % self.rows(market, numbers, self._row), headers=headers)


class WooCommerce(Dialect):
    """`wc/v3/orders`: neither end included, newest first unless asked otherwise, the total in a header."""

    def __init__(self, milliseconds: bool) -> None:
        super().__init__(milliseconds)
        form = '{"id":%(id)d,"status":"%(status)b","date_modified_gmt":"%(modified)b","rev":%(version)d,%(rest)b}'
        self._row = texts.row(form, texts.stamp("T", 0, ""))

    def call(self, request: StandInRequest) -> Call | None:
        """Orders, or the root."""
        calls: dict[str, Call] = {
            "/wp-json/wc/v3/orders": self._orders,
            "/wp-json/": lambda market, request: json_reply({"name": "shop"}),
        }
        return calls.get(request.path)

    def token(self, request: StandInRequest) -> str:
        """Key and secret as user and password."""
        try:
            pair = b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        except ValueError:
            return ""
        key, _, secret = pair.partition(":")
        return secret if key == KEY else ""

    def credentials(self, token: str) -> dict[str, str]:
        """A secret that takes the place of a token."""
        return {"key": KEY, "secret": token}

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """As WordPress words them."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        content = {"code": f"woocommerce_rest_{code}", "message": message, "data": {"status": status}}
        return json_reply(content, status, headers)

    def _orders(self, market: Market, request: StandInRequest) -> Reply:
        query = request.query
        first_us = self.moment(query, "modified_after", _NAIVE) + self.grain_us
        window = self.bounds(market, first_us, self.moment(query, "modified_before", _NAIVE) - self.grain_us)
        numbers = self.by_id(market, window)
        if query.get("orderby") != "id" or query.get("order") != "asc":
            numbers = numbers[::-1]
        page, size = self.whole(query, "page", 1), self.whole(query, "per_page", 10, 100)
        offset = 0 if market.scenario.faults.ignore_page else (page - 1) * size
        total = self.count_total(market, window)
        headers = {"X-WP-Total": str(total), "X-WP-TotalPages": str(-(-total // size))}
        return Reply(b"[%b]" % self.rows(market, numbers[offset : offset + size], self._row), headers=headers)
