"""What a kind of platform can do, declared: how orders are queried and paged, and where totals and times are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

import msgspec
from pydantic import Field, model_validator

from domain.orders.access import PlatformAccess
from domain.orders.declarations import VERSION_PLACEHOLDER as PATH_VERSION
from domain.orders.declarations import (
    ApiVersion,
    Count,
    DetailCall,
    ErrorFormat,
    JsonPathText,
    Parameters,
    PlatformDeclarationBase,
    RateLimit,
    Seconds,
    Text,
    TimeFormat,
    require_known_placeholders,
)
from domain.orders.jsonpath import JsonPath, JsonReader

ROWS, NEXT, MORE, TOTAL = "rows", "next", "more", "total"
ID, MODIFIED, VERSION = "id", "modified", "version"
CODE, MESSAGE = "error_code", "error_message"

Paths = Mapping[str, tuple[JsonPath, Any]]
Call = TypeVar("Call", "OrderQuery", "TotalCall", "ClockCall", "DetailCall")


class PlatformOrder(msgspec.Struct, frozen=True, gc=False):
    """One order as a platform lists it; of two copies the one with the later (modified_at, version) is newer."""

    platform: str
    shop: str
    order_id: str
    modified_at: datetime
    version: int
    """0 where the platform has no versions."""
    raw: bytes
    """The order's JSON text in UTF-8, byte for byte as received: its numbers are never parsed."""


class FilteredTimestamp(StrEnum):
    """Which time of an order a query filters by."""

    CREATED = "created"
    MODIFIED = "modified"


NEWEST_MAX_SECONDS: Final = 2_592_000
"""As long as the longest `settle_lag`, which may not be shorter than what a platform does not answer yet."""


class OrderQuery(PlatformDeclarationBase):
    """How the orders of a window are queried."""

    path: Text = Field(description="below `base_url`; the same for each page")
    parameters: Parameters = Field(default={}, description="sent with each request")
    field: FilteredTimestamp = Field(
        default=FilteredTimestamp.MODIFIED, description="which time of an order is compared with the window"
    )
    start: Text = Field(description="name of the parameter with the window's start")
    end: Text = Field(description="name of the parameter with the window's end")
    shop: Text = Field(default="", description="name of the parameter with the shop, where one is needed")
    start_inclusive: bool = Field(default=True, description="whether an order of the very start is told")
    end_inclusive: bool = Field(default=True, description="whether an order of the very end is told")
    time_format: TimeFormat = Field(default=TimeFormat(), description="how both are written")
    window_min_seconds: Seconds = Field(default=1, description="shortest window that may be asked for")
    window_max_seconds: Seconds | None = Field(default=None, description="longest window that may be asked for")
    newest_seconds: float = Field(
        default=0, ge=0, le=NEWEST_MAX_SECONDS, description="an end is refused that is younger than that"
    )
    history_seconds: Seconds | None = Field(default=None, description="how far back orders are told")


class PagingByNumberCursorTokenOrLink(StrEnum):
    """How a page leads to the next."""

    NUMBER = "number"
    """By its number: rows that leave the window shift all later ones, so the last page is read first."""
    CURSOR = "cursor"
    """By a value that the next request sends beside all other parameters."""
    TOKEN = "token"  # noqa: S105 (no secret: the name of a way of paging)
    """By a value that replaces all other parameters; it may expire."""
    LINK = "link"
    """By the address in the header Link."""


class Paging(PlatformDeclarationBase):
    """How the rows of a window are paged."""

    kind: PagingByNumberCursorTokenOrLink = Field(
        description="how a page leads to the next: by its `number`, by a `cursor` that is sent beside all other "
        "parameters, by a `token` that stands for the whole query, or by a `link` in the header Link"
    )
    parameter: Text = Field(default="", description="name of the parameter with the page's number, cursor or token")
    first: Count = Field(default=1, ge=0, description="number of the first page")
    size_parameter: Text = Field(description="name of the parameter with the rows of a page")
    size: Count = Field(ge=1, description="rows of a page that are asked for")
    size_max: Count = Field(ge=1, description="the most that may be asked for")
    next: JsonPathText | None = Field(default=None, description="where the next cursor or token is told")
    more: JsonPathText | None = Field(default=None, description="where it is told whether there are more pages")
    rows_max: Count | None = Field(default=None, ge=1, description="rows of one query after which the platform stops")
    token_seconds: Seconds | None = Field(
        default=None, description="how long a cursor, token or link is good; a reading that waits longer begins again"
    )

    @model_validator(mode="after")
    def _require_consistent_paging(self) -> Self:
        if self.size > self.size_max:
            raise ValueError(f"pages of {self.size} rows were asked for; the platform tells at most {self.size_max}")
        if (self.kind is not PagingByNumberCursorTokenOrLink.LINK) and not self.parameter:
            raise ValueError(f"paging by {self.kind.value} needs the name of its parameter")
        if (
            self.kind in (PagingByNumberCursorTokenOrLink.CURSOR, PagingByNumberCursorTokenOrLink.TOKEN)
            and self.next is None
        ):
            raise ValueError(f"paging by {self.kind.value} needs the path `next`")
        return self


class TotalCall(PlatformDeclarationBase):
    """How the number of rows of a window is requested."""

    path: Text | None = Field(default=None, description="path of a call of its own; by default the query's")
    parameters: Parameters = Field(default={}, description="beside the query's, or instead of the same ones there")
    value: JsonPathText | None = Field(default=None, description="where the answer tells it, if no header does")
    header: Text | None = Field(default=None, description="name of the header that tells it")
    max: Count | None = Field(default=None, ge=1, description="from which number on it is told no longer exactly")

    @model_validator(mode="after")
    def _require_either_value_or_header(self) -> Self:
        if (self.value is None) == (self.header is None):
            raise ValueError("a total is told either by `value` or by `header`")
        return self


class ClockCall(PlatformDeclarationBase):
    """The call that returns the platform's time."""

    path: Text = Field(description="of any call whose answer tells the time, below `base_url`")
    parameters: Parameters = Field(default={}, description="sent with it")
    value: JsonPathText | None = Field(default=None, description="by default the header Date of the answer is read")
    time_format: TimeFormat = Field(default=TimeFormat(), description="how it is written")
    counted: bool = Field(default=True, description="whether the rate limit counts the call")


class OrderRowFields(PlatformDeclarationBase):
    """Where an answer has its rows, and which of their fields are read; everything else stays as received."""

    list: JsonPathText = Field(description="where a page's answer has its rows")
    id: JsonPathText = Field(description="where a row tells the order's id")
    modified: JsonPathText = Field(description="where a row tells when the order was modified")
    time_format: TimeFormat = Field(default=TimeFormat(), description="how that is written")
    version: JsonPathText | None = Field(default=None, description="where a row counts changes of one moment")
    absent_when_empty: bool = Field(default=False, description="whether an empty answer leaves the list out")


class Capability(PlatformDeclarationBase):
    """What a connector needs to know of a kind of platform."""

    kind: Text = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$", description="its name")
    version: ApiVersion | None = Field(default=None, description="of the interface, if it has several")
    query: OrderQuery
    paging: Paging
    total: TotalCall | None = Field(default=None, description="where a window's number of rows is told, if it is")
    clock: ClockCall
    rate: RateLimit
    rows: OrderRowFields
    detail: DetailCall | None = Field(default=None, description="a second call for each order, if one is needed")
    access: PlatformAccess = PlatformAccess()
    errors: ErrorFormat = ErrorFormat()

    @model_validator(mode="after")
    def _require_version_in_one_place(self) -> Self:
        """Require that the version is named in exactly one way, and only where one is declared."""
        paths = [self.query.path, self.clock.path, *([self.total.path] if self.total and self.total.path else [])]
        for path in paths:
            require_known_placeholders(path, {PATH_VERSION})
        in_path = any(PATH_VERSION in path for path in [*paths, *([self.detail.path] if self.detail else [])])
        version = self.version
        ways = sum((in_path, bool(version and version.parameter), bool(version and version.header)))
        if ways != (version is not None):
            raise ValueError(
                "a version is declared by `version` and named in one way: in paths ({version}), a parameter or a header"
            )
        return self

    @model_validator(mode="after")
    def _require_compatible_paths(self) -> Self:
        """Refuse paths that exclude each other when they are declared, not at the first answer."""
        for paths in (self.build_page_paths(), self.build_row_paths()):
            JsonReader(paths)
        return self

    def compute_zone_minutes(self, day: date) -> int:
        """Return the offset from UTC, at the beginning of a day, of the zone in which the platform writes times."""
        for time_format in (self.rows.time_format, self.query.time_format):
            if time_format.zone is not None or time_format.zone_minutes:
                offset = datetime.combine(day, time(), time_format.timezone).utcoffset() or timedelta()
                return offset // timedelta(minutes=1)
        return 0

    def build_page_paths(self) -> Paths:
        """Paths and types of the values that are read from each page."""
        total = self.total.value if self.total and self.total.path is None else None
        return {
            ROWS: (JsonPath.parse(self.rows.list), list[msgspec.Raw]),
            **_parse_paths({NEXT: (self.paging.next, int | str), TOTAL: (total, int | str)}),
            **_parse_paths({MORE: (self.paging.more, bool | int | str)}),
            **self.build_error_paths(),
        }

    def build_row_paths(self) -> Paths:
        """Paths and types of the values that are read from each row."""
        rows = self.rows
        wanted = {ID: (rows.id, int | str), MODIFIED: (rows.modified, int | str), VERSION: (rows.version, int)}
        return _parse_paths(wanted)

    def build_error_paths(self) -> Paths:
        """Paths and types of the error fields, which are read from every answer."""
        return _parse_paths({CODE: (self.errors.code, int | str), MESSAGE: (self.errors.message, str)})

    def replace_default_version_if_any(self, value: str | None) -> Capability:
        """Return the capability with another API version, where one is set."""
        if value is None or self.version is None:
            return self
        return self.model_copy(update={"version": self.version.model_copy(update={"value": value})})

    def put_version_into_paths_and_parameters(self) -> Capability:
        """Return the capability with the version in its paths and parameters; a version header is set by the client."""
        version = self.version
        if version is None or version.header:
            return self
        value = version.value
        named = {version.parameter: value} if version.parameter else {}

        def copy_call_with_version(call: Call, *, inherits: bool = False) -> Call:
            path = call.path and call.path.replace(PATH_VERSION, value)
            parameters = call.parameters if inherits else {**call.parameters, **named}
            return call.model_copy(update={"path": path, "parameters": parameters})

        return self.model_copy(
            update={
                "query": copy_call_with_version(self.query),
                # Its parameters are sent beside the query's.
                "total": self.total and copy_call_with_version(self.total, inherits=True),
                "clock": copy_call_with_version(self.clock),
                "detail": self.detail and copy_call_with_version(self.detail),
            }
        )

    def compute_query_bounds(self, start: datetime, end: datetime) -> tuple[datetime, datetime]:
        """Return the narrowest inclusive bounds that leave out no order of [start, end).

        A bound within an repeated hour is moved out of it.

        Where the platform keeps finer times than a query can name, the last instant before `end` lies between two that
        can be named: then the later one is used.
        """
        query_times = self.query.time_format
        asked, kept = query_times.smallest_step, self.rows.time_format.smallest_step
        first = _floor_to_resolution(start if self.query.start_inclusive else start - kept, asked)
        last = _ceil_to_resolution(end - kept if self.query.end_inclusive else end, asked)
        # Where clocks are put back, a bound within the repeated hour may be read as either of its times.
        before, after = query_times.find_repeated_hour(first), query_times.find_repeated_hour(last)
        return (before[0] if before else first), (after[1] if after else last)

    def is_in_repeated_hour(self, start: datetime, end: datetime) -> bool:
        """Return whether a query for [start, end) asks for a whole repeated hour, however short it is."""
        return any(self.query.time_format.find_repeated_hour(each) for each in (start, end))

    def compute_latest_answerable_window_end(self, now: datetime) -> datetime:
        """Return the latest end of a window that the platform answers at this time of its clock.

        An repeated hour is asked for when it is over: before that, no query tells its two halves apart.
        """
        time_format = self.query.time_format
        end = _floor_to_resolution(now - timedelta(seconds=self.query.newest_seconds), time_format.smallest_step)
        doubled = time_format.find_repeated_hour(end)
        return doubled[0] if doubled else end


def _parse_paths(paths: Mapping[str, tuple[str | None, Any]]) -> Paths:
    return {name: (JsonPath.parse(path), kind) for name, (path, kind) in paths.items() if path}


_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _floor_to_resolution(moment: datetime, grain: timedelta) -> datetime:
    return moment - (moment - _UNIX_EPOCH) % grain


def _ceil_to_resolution(moment: datetime, grain: timedelta) -> datetime:
    return moment + (_UNIX_EPOCH - moment) % grain
