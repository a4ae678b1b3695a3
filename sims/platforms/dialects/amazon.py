"""Amazon's orders: no total, tokens to the next page that may come again, and a window that ends two minutes ago."""

from __future__ import annotations

from typing import Final

from sims.platforms import texts
from sims.platforms.clock import MICRO
from sims.platforms.dialects.base import (
    Call,
    Dialect,
    Refusal,
    Reply,
    StandInRequest,
    decode_token,
    encode_token,
    json_reply,
)
from sims.platforms.market import Market

_UTC: Final = "%Y-%m-%dT%H:%M:%SZ"
_NEWEST_US: Final = 120 * MICRO


class Amazon(Dialect):
    """`/orders/v0/orders`, both ends included."""

    clock_counts = False

    def __init__(self, milliseconds: bool) -> None:
        super().__init__(milliseconds)
        self._stamp = texts.stamp("T", 0, "Z")

    def call(self, request: StandInRequest) -> Call | None:
        """Orders, or the items of one; anything else has at least a Date."""
        if self.is_apart(request):
            return self._items
        return self._orders if request.path == "/orders/v0/orders" else None

    def is_apart(self, request: StandInRequest) -> bool:
        """Items have a rate of their own."""
        return len(request.segments) == 5 and request.segments[4] == "orderItems"

    def is_clock(self, request: StandInRequest) -> bool:
        """The root answers with the time in its header."""
        return request.path == "/"

    def token(self, request: StandInRequest) -> str:
        """In a header."""
        return request.headers.get("x-amz-access-token", "")

    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """Amazon does not say how long to wait."""
        codes = {
            "busy": "QuotaExceeded",
            "expired": "Unauthorized",
            "refused": "InvalidInput",
            "broken": "InternalFailure",
        }
        text = "The access token you provided has expired." if code == "expired" else message
        return json_reply({"errors": [{"code": codes[code], "message": text}]}, 403 if code == "expired" else status)

    def _orders(self, market: Market, request: StandInRequest) -> Reply:
        query = request.query
        if not query.get("MarketplaceIds"):
            raise Refusal(self.error(400, "refused", "MarketplaceIds is missing"))
        size = self.whole(query, "MaxResultsPerPage", 100, 100)
        if "NextToken" in query:
            first_us, last_us, key, page, told_us = self._decode(market, query["NextToken"])
        else:
            first_us, last_us = (
                self.moment(query, "LastUpdatedAfter", _UTC),
                self.moment(query, "LastUpdatedBefore", _UTC),
            )
            key, page, told_us = -1, 0, market.now_us
            if last_us > market.now_us - _NEWEST_US:
                raise Refusal(self.error(400, "refused", "LastUpdatedBefore must be 2 minutes before now"))
        window = self.bounds(market, first_us, last_us)
        numbers = market.after(window, key, size)
        token = b""
        if len(numbers) == size:
            page += 1
            following = [first_us, last_us, market.key(numbers[-1]), page, market.now_us]
            if page - 1 == market.scenario.faults.repeat_token_at:
                following = [first_us, last_us, key, page - 1, told_us]
            token = b'"NextToken":"%b",' % encode_token(following).encode()
        rows = self.rows(market, numbers, self._row)
        before = self._stamp(last_us)
        return Reply(b'{"payload":{"Orders":[%b],%b"LastUpdatedBefore":"%b"}}' % (rows, token, before))

    def _items(self, market: Market, request: StandInRequest) -> Reply:
        """Two on a page."""
        name, place = request.segments[3], self.whole(request.query, "NextToken", 0)
        known = texts.number_of_amazon(name)
        if request.segments[:3] != ["orders", "v0", "orders"] or not 0 <= known < len(market.created):
            raise Refusal(self.error(404, "refused", f"there is no order {name}"))
        rows, following = texts.items(known), place + 2
        token = f',"NextToken":"{following}"' if following < len(rows) else ""
        listed = ",".join(rows[place:following])
        return Reply(f'{{"payload":{{"AmazonOrderId":"{name}","OrderItems":[{listed}]{token}}}}}'.encode())

    def _decode(self, market: Market, token: str) -> list[int]:
        try:
            first_us, last_us, key, page, told_us = decode_token(token)
        except (ValueError, TypeError):
            raise Refusal(self.error(400, "refused", "NextToken is invalid")) from None
        good_seconds = market.scenario.faults.page_token_seconds
        if good_seconds is not None and market.now_us - told_us > good_seconds * MICRO:
            raise Refusal(self.error(400, "refused", "NextToken has expired"))
        return [first_us, last_us, key, page, told_us]

    def _row(self, market: Market, number: int) -> bytes:
        version = market.shown.version[number]
        return b'{"AmazonOrderId":"%b","LastUpdateDate":"%b","OrderStatus":"%b","rev":%d,%b}' % (
            texts.amazon_id(number).encode(),
            self._stamp(market.shown.modified[number]),
            texts.status(version),
            version,
            texts.tail((number * 31 + version) % 64),
        )
