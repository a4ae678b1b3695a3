"""What all dialects share: calls, replies, windows, and where the faults of a scenario touch a page."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from sims.platforms.clock import MICRO
from sims.platforms.market import Market, Range

Query = Mapping[str, str]
SECRET = "s3cret"  # noqa: S105 (of a stand-in)
KEY = "key-1"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StandInRequest:
    """One call of an account whose base address is `base`."""

    path: str
    query: Query
    headers: Mapping[str, str]
    base: str
    segments: Sequence[str] = ()
    """The path as it was sent, taken apart at its slashes: one that was sent as %2F parts nothing."""


class Refusal(Exception):
    """The request is wrong; the reply says so in the dialect's words."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


Call = Callable[[Market, StandInRequest], Reply]


class Dialect(ABC):
    """One kind of platform, for one account."""

    grain_us = MICRO
    """How finely orders' times are kept."""
    rows_max: int | None = None
    clock_counts = True
    """Whether asking for the time counts against the rate."""

    def __init__(self, milliseconds: bool) -> None:
        if milliseconds:
            self.grain_us = 1_000
        self._by_id: tuple[object, list[int]] = (None, [])

    @abstractmethod
    def call(self, request: StandInRequest) -> Call | None:
        """What is asked; None where there is nothing."""

    @abstractmethod
    def token(self, request: StandInRequest) -> str:
        """The token of a request that is signed rightly, else nothing."""

    @abstractmethod
    def error(self, status: int, code: str, message: str, retry_after: float | None = None) -> Reply:
        """An error in its words. The codes are: busy, expired, refused, broken."""

    def credentials(self, token: str) -> dict[str, str]:
        """What a request is signed with while this token is good."""
        return {"key": KEY, "secret": SECRET, "token": token}

    def is_clock(self, request: StandInRequest) -> bool:
        """Whether only the time is asked for."""
        return False

    def is_apart(self, request: StandInRequest) -> bool:
        """Whether a call is counted by itself, against a rate that this stand-in does not keep."""
        return False

    def bounds(self, market: Market, first_us: int, last_us: int) -> Range:
        """The orders of a window, changed by what happens just now, and by faults."""
        market.stir(market.range(first_us, last_us))
        if market.scenario.faults.ignore_filter:
            return market.everything()
        return market.range(first_us, last_us)

    def count_total(self, market: Market, window: Range) -> int:
        """Return the total that this platform answers."""
        return max(0, len(window) + market.scenario.faults.total_off)

    def cap(self, market: Market) -> int | None:
        """Return how many rows of a query are listed."""
        return market.scenario.rows_max or self.rows_max

    def by_id(self, market: Market, window: Range) -> list[int]:
        """The orders of a window by their ids."""
        key = (window, market.changes)
        if self._by_id[0] != key:
            self._by_id = (key, sorted(market.ascending(window, 0, len(window))))
        return self._by_id[1]

    def rows(self, market: Market, numbers: Sequence[int], write: Callable[[Market, int], bytes]) -> bytes:
        """Orders as a list's content; a lying platform leaves one out."""
        faults = market.scenario.faults
        if faults.drop_share and numbers and market.chance.random() < faults.drop_share:
            numbers = numbers[:-1]
        return b",".join([write(market, number) for number in numbers])

    def whole(self, query: Query, name: str, default: int, most: int = 10**9) -> int:
        """A number of a request."""
        text = query.get(name, str(default))
        if not text.isascii() or not text.isdigit() or not int(text) <= most:
            raise Refusal(self.error(400, "refused", f"{name}={text} is no number up to {most}"))
        return int(text)

    def moment(self, query: Query, name: str, form: str, zone_minutes: int = 0) -> int:
        """A time of a request, in microseconds."""
        text = query.get(name, "")
        try:
            moment = datetime.strptime(text, form).replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
        except ValueError:
            raise Refusal(self.error(400, "refused", f"{name}={text!r} is no time like {form}")) from None
        return (moment - _EPOCH) // timedelta(microseconds=1)


def json_reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A small answer."""
    return Reply(json.dumps(content, ensure_ascii=False).encode(), status, headers or {})


def encode_token(content: Sequence[int]) -> str:
    """Encode numbers as an opaque token."""
    return urlsafe_b64encode(json.dumps(content).encode()).decode()


def decode_token(token: str) -> list[int]:
    """The numbers of a token; raises ValueError."""
    content = json.loads(urlsafe_b64decode(token.encode()))
    if not isinstance(content, list):
        raise TypeError("no list")
    return [int(each) for each in content]
