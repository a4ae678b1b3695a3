"""What a platform can do, declared: how orders are asked for, how pages follow, what its clock and its limits are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from domain.orders.jsonpath import Path, Reader
from domain.orders.moments import Moments

ROWS, NEXT, MORE, TOTAL = "rows", "next", "more", "total"
ID, MODIFIED, VERSION = "id", "modified", "version"
CODE, MESSAGE = "error_code", "error_message"

Paths = Mapping[str, tuple[Path, Any]]
Seconds = Annotated[float, Field(gt=0)]


def _readable(path: str) -> str:
    Path.parse(path)
    return path


JsonPath = Annotated[str, AfterValidator(_readable)]


class Order(msgspec.Struct, frozen=True, gc=False):
    """One order as a platform told it; of two copies the one with the later (modified_at, version) is the newer."""

    platform: str
    shop: str
    order_id: str
    modified_at: datetime
    version: int
    """0 where the platform counts no versions."""
    raw: bytes
    """The order's JSON text, as it was sent: no number in it was read."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class QueryField(StrEnum):
    """Which time of an order a query compares with its window."""

    CREATED = "created"
    MODIFIED = "modified"


class Query(_Record):
    """How orders of a window are asked for."""

    path: str
    parameters: dict[str, str] = {}
    field: QueryField = QueryField.MODIFIED
    start: str = Field(description="name of the parameter with the window's start")
    end: str = Field(description="name of the parameter with the window's end")
    shop: str = Field(default="", description="name of the parameter with the shop, where one is needed")
    start_inclusive: bool = True
    end_inclusive: bool = True
    moments: Moments = Moments()
    window_min_seconds: Seconds = 1
    window_max_seconds: Seconds | None = None
    newest_seconds: float = Field(default=0, ge=0, description="an end is refused that is younger than that")
    history_seconds: Seconds | None = Field(default=None, description="how far back orders are told")


class PagingKind(StrEnum):
    """How a page leads to the next."""

    NUMBER = "number"
    """By its number: rows that leave or enter the window move all that follow."""
    CURSOR = "cursor"
    """By a value that the next request repeats beside all other parameters."""
    TOKEN = "token"  # noqa: S105 (no secret: the name of a way of paging)
    """By a value that stands for the whole query; it may expire."""
    LINK = "link"
    """By the address in the header Link."""


class Direction(StrEnum):
    """Which way numbered pages are safe to read."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """From the last to the first: what leaves the window is then told twice instead of never."""


class Paging(_Record):
    """How a window's rows are told, page by page."""

    kind: PagingKind
    direction: Direction = Direction.FORWARD
    parameter: str = Field(default="", description="name of the parameter with the page's number, cursor or token")
    first: int = Field(default=1, ge=0, description="number of the first page")
    size_parameter: str
    size: int = Field(ge=1)
    size_max: int = Field(ge=1)
    next: JsonPath | None = Field(default=None, description="where the next cursor or token is told")
    more: JsonPath | None = Field(default=None, description="where it is told whether there are more pages")
    rows_max: int | None = Field(default=None, ge=1, description="rows of one query after which the platform stops")
    token_seconds: Seconds | None = Field(
        default=None, description="how long a cursor, token or link is good; a reading that waits longer begins again"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.size > self.size_max:
            raise ValueError(f"pages of {self.size} rows were asked for; the platform tells at most {self.size_max}")
        if (self.kind is not PagingKind.LINK) and not self.parameter:
            raise ValueError(f"paging by {self.kind.value} needs the name of its parameter")
        if self.kind in (PagingKind.CURSOR, PagingKind.TOKEN) and self.next is None:
            raise ValueError(f"paging by {self.kind.value} needs the path `next`")
        if self.direction is Direction.BACKWARD and self.kind is not PagingKind.NUMBER:
            raise ValueError("only numbered pages can be read from the last to the first")
        return self


class Total(_Record):
    """How many rows a window holds, and how that is asked."""

    path: str | None = Field(default=None, description="path of a call of its own; by default the query's")
    parameters: dict[str, str] = Field(default={}, description="beside the query's, or instead of the same ones there")
    value: JsonPath | None = None
    header: str | None = Field(default=None, description="name of the header that tells it")
    max: int | None = Field(default=None, ge=1, description="from which number on it is told no longer exactly")

    @model_validator(mode="after")
    def _once(self) -> Self:
        if (self.value is None) == (self.header is None):
            raise ValueError("a total is told either by `value` or by `header`")
        return self


class Clock(_Record):
    """Where the platform's time is read."""

    path: str
    parameters: dict[str, str] = {}
    value: JsonPath | None = Field(default=None, description="by default the header Date of the answer is read")
    moments: Moments = Moments()
    counted: bool = Field(default=True, description="whether the rate limit counts the call")


class RateLimit(_Record):
    """What all our workers together may ask of one account."""

    per_second: float = Field(gt=0)
    burst: int = Field(default=1, ge=1)
    per_day: int | None = Field(default=None, ge=1)


class Rows(_Record):
    """Where rows are, and what is read from each; everything else stays as it was sent."""

    list: JsonPath
    id: JsonPath
    modified: JsonPath
    moments: Moments = Moments()
    version: JsonPath | None = None
    absent_when_empty: bool = Field(default=False, description="whether an empty answer leaves the list out")


class Detail(_Record):
    """A second call that tells an order whole."""

    path: str
    parameters: dict[str, str] = {}
    id_parameter: str
    row: JsonPath


class Signing(StrEnum):
    """How a request shows whose it is."""

    NONE = "none"
    HEADER = "header"
    """The token stands in a header."""
    BASIC = "basic"
    """Key and secret as a user and a password."""
    SORTED_MD5 = "sorted_md5"
    """All parameters, sorted, between the secret, as one MD5: Taobao, Pinduoduo."""


class Access(_Record):
    """Which parts of an account's credentials a request carries, and where."""

    signing: Signing = Signing.NONE
    header: str = Field(default="", description="name of the header with the token")
    prefix: str = Field(default="", description="stands before the token")
    key_parameter: str = ""
    token_parameter: str = ""
    time_parameter: str = ""
    moments: Moments = Moments()
    sign_parameter: str = ""


class Meaning(StrEnum):
    """What an error tells us to do."""

    BUSY = "busy"
    """Ask again later: a rate or a quota is used up, or the platform has a bad moment."""
    REFUSED = "refused"
    """Asking again would not help."""
    EXPIRED = "expired"
    """Ask again with fresh credentials."""


class ErrorRule(_Record):
    """An error by its status or its code, and what it means. The first that fits counts."""

    meaning: Meaning
    statuses: tuple[int, ...] = ()
    codes: tuple[str, ...] = ()
    pattern: str = Field(default="", description="regular expression that the message holds")
    retry_after_seconds: float | None = Field(default=None, ge=0, description="where the answer names none")

    @model_validator(mode="after")
    def _narrow(self) -> Self:
        if not (self.statuses or self.codes or self.pattern):
            raise ValueError("a rule for errors names statuses, codes or a pattern")
        return self


class Errors(_Record):
    """How errors are told beside the status of an answer."""

    code: JsonPath | None = None
    message: JsonPath | None = None
    wait_pattern: str = Field(default="", description="its first group in a message is how many seconds to wait")
    rules: tuple[ErrorRule, ...] = ()


class Capability(_Record):
    """Everything that a connector has to know of a kind of platform."""

    kind: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    query: Query
    paging: Paging
    total: Total | None = None
    clock: Clock
    rate: RateLimit
    rows: Rows
    detail: Detail | None = None
    access: Access = Access()
    errors: Errors = Errors()

    @model_validator(mode="after")
    def _readable_backwards(self) -> Self:
        if self.paging.direction is Direction.BACKWARD and self.total is None:
            raise ValueError("pages are read from the last only where a total tells which one that is")
        return self

    @model_validator(mode="after")
    def _read_at_once(self) -> Self:
        """Paths that exclude each other are told here, not by the first answer."""
        for paths in (self.page_paths(), self.row_paths()):
            Reader(paths)
        return self

    def page_paths(self) -> Paths:
        """What is read from each page, and what kind of value is expected there."""
        total = self.total.value if self.total and self.total.path is None else None
        return {
            ROWS: (Path.parse(self.rows.list), list[msgspec.Raw]),
            **_parsed({NEXT: (self.paging.next, int | str), TOTAL: (total, int | str)}),
            **_parsed({MORE: (self.paging.more, bool | int | str)}),
            **self.error_paths(),
        }

    def row_paths(self) -> Paths:
        """What is read from each row."""
        rows = self.rows
        wanted = {ID: (rows.id, int | str), MODIFIED: (rows.modified, int | str), VERSION: (rows.version, int)}
        return _parsed(wanted)

    def error_paths(self) -> Paths:
        """What every answer is looked through for."""
        return _parsed({CODE: (self.errors.code, int | str), MESSAGE: (self.errors.message, str)})

    def bounds(self, start: datetime, end: datetime) -> tuple[datetime, datetime]:
        """What to ask for, so that no order of [start, end) is left out and as few others as can be come.

        Where the platform keeps finer times than it can be asked for, the last instant before `end` lies between two
        that can be named: then the later one is asked for.
        """
        asked, kept = self.query.moments.resolution, self.rows.moments.resolution
        first = start if self.query.start_inclusive else start - kept
        last = end - kept if self.query.end_inclusive else end
        return _floor(first, asked), _ceil(last, asked)

    def newest_end(self, now: datetime) -> datetime:
        """Up to when the platform answers at a time of its clock."""
        return _floor(now - timedelta(seconds=self.query.newest_seconds), self.query.moments.resolution)


def _parsed(wanted: Mapping[str, tuple[str | None, Any]]) -> Paths:
    return {name: (Path.parse(path), kind) for name, (path, kind) in wanted.items() if path}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _floor(moment: datetime, grain: timedelta) -> datetime:
    return moment - (moment - _EPOCH) % grain


def _ceil(moment: datetime, grain: timedelta) -> datetime:
    return moment + (_EPOCH - moment) % grain
