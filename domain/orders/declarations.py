"""Building blocks of a declared platform: bounded field types, time formats, rates, detail calls and error rules."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from functools import partial
from typing import Annotated, Final, Self, assert_never
from urllib.parse import quote
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from domain.orders.jsonpath import JsonPath

ID_PLACEHOLDER: Final = "{id}"
VERSION_PLACEHOLDER: Final = "{version}"
VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"

_PLACEHOLDER = re.compile(r"\{[^{}]*\}?|\}")

TEXT_MAX_CHARACTERS: Final = 2_000
LISTED_MAX: Final = 100
"""Limit of parameters of a request, of error rules, and of codes of one rule."""


def _require_json_path(path: str) -> str:
    JsonPath.parse(path)
    return path


Text = Annotated[str, Field(max_length=TEXT_MAX_CHARACTERS)]
Parameters = Annotated[dict[str, Text], Field(max_length=LISTED_MAX)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
JsonPathText = Annotated[
    str, AfterValidator(_require_json_path), Field(max_length=TEXT_MAX_CHARACTERS, examples=["$.data.orders"])
]
SECONDS_MAX: Final = 100 * 366 * 86_400
"""Limit of each declared duration: no platform has older orders, and each can be added to a time."""
Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX)]


class PlatformDeclarationBase(BaseModel):
    """Base of all parts of a declared platform."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_SECOND: Final = timedelta(seconds=1)
PER_SECOND_MAX: Final = 1_000_000
BURST_RETURNS_MAX_SECONDS: Final = 366 * 86_400


class RateLimit(PlatformDeclarationBase):
    """Rate limit of one account, shared by all workers."""

    per_second: float = Field(gt=0, description="requests of all workers together")
    burst: Count = Field(default=1, ge=1, description="requests that may come at once after a pause")
    per_day: Count | None = Field(default=None, ge=1, description="requests within 24 hours, if they are limited")

    @model_validator(mode="after")
    def _require_rate_that_can_be_counted(self) -> Self:
        if self.per_second > PER_SECOND_MAX:
            raise ValueError(f"{self.per_second:g} requests a second are too many; at most {PER_SECOND_MAX:,} count")
        if self.burst > self.per_second * BURST_RETURNS_MAX_SECONDS:
            raise ValueError(
                f"a burst of {self.burst:,} requests at {self.per_second:g} a second is back after more than a year; "
                "declare fewer, or how many a day are allowed in `per_day`"
            )
        return self


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeNotation(StrEnum):
    """How a time is written."""

    RFC3339 = "rfc3339"
    """2026-01-02T03:04:05+08:00, with its zone."""
    NAIVE = "naive"
    """2026-01-02T03:04:05, in the platform's zone."""
    SPACED = "spaced"
    """2026-01-02 03:04:05, in the platform's zone."""
    EPOCH = "epoch"
    """Seconds since 1970."""
    EPOCH_MS = "epoch_ms"
    """Milliseconds since 1970."""


class TimeResolution(StrEnum):
    """Precision of times."""

    SECOND = "second"
    MILLISECOND = "millisecond"
    MICROSECOND = "microsecond"


_RESOLUTIONS = {
    TimeResolution.SECOND: timedelta(seconds=1),
    TimeResolution.MILLISECOND: timedelta(milliseconds=1),
    TimeResolution.MICROSECOND: timedelta(microseconds=1),
}
_TIMESPECS = {
    TimeResolution.SECOND: "seconds",
    TimeResolution.MILLISECOND: "milliseconds",
    TimeResolution.MICROSECOND: "microseconds",
}


_FINEST = {TimeNotation.EPOCH: TimeResolution.SECOND, TimeNotation.EPOCH_MS: TimeResolution.MILLISECOND}
_LOCAL = (TimeNotation.NAIVE, TimeNotation.SPACED)
_ZONE_NAME = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$"

TimeParser = Callable[[str | int, datetime], datetime]
"""Parses a time of an answer to UTC, given when that was requested; raises ValueError for anything else."""


class TimeFormat(BaseModel):
    """How one kind of time is written.

    Where clocks are put back, an hour is told twice. A time of it is taken for the later one that is not in the future:
    so a copy of an order never seems older than it is, and a later change of the order is never taken for an earlier.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: TimeNotation = Field(
        default=TimeNotation.RFC3339,
        description="2026-01-02T03:04:05+08:00 (`rfc3339`), without its zone (`naive`), with a space instead of the T "
        "(`spaced`), seconds (`epoch`) or milliseconds (`epoch_ms`) since 1970",
    )
    zone_minutes: int = Field(
        default=0,
        ge=-720,
        le=840,
        description="how far the zone of such times is before UTC, where they name none; of a zone whose clocks are "
        "put forward and back send its name as `zone`",
    )
    zone: Text | None = Field(
        default=None,
        pattern=_ZONE_NAME,
        description="name of the zone of such times, as Europe/Berlin, in place of `zone_minutes`; for `naive` and "
        "`spaced`",
    )
    resolution: TimeResolution = Field(default=TimeResolution.SECOND, description="how finely such times are written")

    @model_validator(mode="after")
    def _require_known_zone_of_local_times(self) -> Self:
        if self.zone is None:
            return self
        if self.form not in _LOCAL or self.zone_minutes:
            raise ValueError("`zone` names the zone of times that name none, in place of `zone_minutes`: send one")
        try:
            ZoneInfo(self.zone)
        except (ValueError, OSError, KeyError):
            raise ValueError(f"there is no zone {self.zone!r}; send a name like Europe/Berlin") from None
        return self

    @model_validator(mode="after")
    def _require_resolution_that_can_be_written(self) -> Self:
        finest = _FINEST.get(self.form)
        if finest is not None and self.smallest_step < _RESOLUTIONS[finest]:
            raise ValueError(f"times in the form {self.form.value} are told to the {finest.value}, not finer")
        return self

    @property
    def smallest_step(self) -> timedelta:
        """The smallest difference that can be written."""
        return _RESOLUTIONS[self.resolution]

    @property
    def timezone(self) -> tzinfo:
        """The zone of times that name none."""
        return timezone(timedelta(minutes=self.zone_minutes)) if self.zone is None else ZoneInfo(self.zone)

    @property
    def is_local_by_fixed_offset(self) -> bool:
        """Whether such times name no zone, and are taken for those of one offset the whole year."""
        return self.form in _LOCAL and self.zone is None

    def find_repeated_hour(self, moment: datetime) -> tuple[datetime, datetime] | None:
        """Return the last second before an repeated hour and the first after it; None if this is outside.

        Both are written so that they are clear themselves. They are the same for each moment of the hour, so that a
        query for a part of a window never asks for more than one for the window.
        """
        local = moment.astimezone(self.timezone).replace(fold=0, microsecond=0)
        early, late = local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)
        if self.zone is None or early >= late:
            return None
        before = early.astimezone(self.timezone).utcoffset()
        seconds = range((late - early) // _SECOND + 1)
        turn = early + _SECOND * bisect_left(
            seconds, x=True, key=lambda each: (early + _SECOND * each).astimezone(self.timezone).utcoffset() != before
        )
        return turn - (late - early) - _SECOND, turn + (late - early)

    def format_time(self, moment: datetime) -> str:
        """Format a time as a parameter of a request, truncated to the resolution."""
        local = moment.astimezone(self.timezone)
        match self.form:
            case TimeNotation.RFC3339:
                return local.isoformat(timespec=_TIMESPECS[self.resolution]).replace("+00:00", "Z")
            case TimeNotation.NAIVE:
                return local.replace(tzinfo=None).isoformat(timespec=_TIMESPECS[self.resolution])
            case TimeNotation.SPACED:
                return local.replace(tzinfo=None).isoformat(sep=" ", timespec=_TIMESPECS[self.resolution])
            case TimeNotation.EPOCH:
                return str((moment - EPOCH) // timedelta(seconds=1))
            case TimeNotation.EPOCH_MS:
                return str((moment - EPOCH) // timedelta(milliseconds=1))
            case _:
                assert_never(self.form)

    def build_time_parser(self) -> TimeParser:
        """Return a function that parses a time of an answer to UTC; that raises ValueError for any other value."""
        match self.form:
            case TimeNotation.RFC3339:
                return lambda text, _: _parse_with_zone(text)
            case TimeNotation.NAIVE | TimeNotation.SPACED:
                return partial(_parse_local_or_with_zone, self.timezone)
            case TimeNotation.EPOCH:
                return lambda number, _: EPOCH + timedelta(seconds=int(number))
            case TimeNotation.EPOCH_MS:
                return lambda number, _: EPOCH + timedelta(milliseconds=int(number))
            case _:
                assert_never(self.form)


def _parse_local_or_with_zone(zone: tzinfo, text: str | int, asked_at: datetime) -> datetime:
    moment = datetime.fromisoformat(str(text))
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    late = moment.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return late if late <= asked_at else moment.replace(tzinfo=zone).astimezone(UTC)


def _parse_with_zone(text: str | int) -> datetime:
    moment = datetime.fromisoformat(str(text))
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} tells no zone")
    return moment.astimezone(UTC)


class DetailCall(PlatformDeclarationBase):
    """A second call for each order, where the list has only part of it."""

    path: Text = Field(description="may hold {id}, where the order's id is put in, percent-encoded")
    parameters: Parameters = Field(default={}, description="sent with it")
    id_parameter: Text = Field(default="", description="name of the parameter with the id, where the path has none")
    row: JsonPathText = Field(description="where the answer tells the order, or the part that goes `into` it")
    into: Text = Field(
        default="", description="name of the listed order's field that takes it; by default it is the order, whole"
    )
    next: JsonPathText | None = Field(default=None, description="where the token of the next page of a part is told")
    next_parameter: Text = Field(default="", description="name of the parameter with that token")
    rate: RateLimit | None = Field(
        default=None, description="where the platform counts these calls by themselves; by default with all others"
    )

    @model_validator(mode="after")
    def _require_consistent_call(self) -> Self:
        require_known_placeholders(self.path, {ID_PLACEHOLDER, VERSION_PLACEHOLDER})
        if (ID_PLACEHOLDER in self.path) == bool(self.id_parameter):
            raise ValueError("a detail call names the order either by {id} in its path or by `id_parameter`")
        if (self.next is None) == bool(self.next_parameter):
            raise ValueError("pages of a detail call need both `next` and `next_parameter`")
        if self.rate is not None and self.rate.per_day is not None:
            raise ValueError("the quota of a day counts all calls; it stands in `rate` of the platform")
        if self.next is not None and not self.into:
            raise ValueError("only a part that goes `into` an order comes in pages")
        return self

    def build_path(self, order_id: str) -> str:
        """Return the path for one order; raises ValueError where its id cannot be part of a path."""
        if ID_PLACEHOLDER in self.path and order_id in (".", ".."):
            raise ValueError(f"The id {order_id!r} would lead to another path.")
        return self.path.replace(ID_PLACEHOLDER, quote(order_id, safe=""))

    def build_parameters(self, order_id: str, token: str | None = None) -> dict[str, str]:
        """Return the parameters for one order: of the first page, or of the one that a token leads to."""
        named = {self.id_parameter: order_id} if self.id_parameter else {}
        return {**self.parameters, **named, **({} if token is None else {self.next_parameter: token})}


class ApiVersion(PlatformDeclarationBase):
    """The API version that a platform is called with; the setting `api_version` overrides it."""

    value: Text = Field(pattern=VERSION_PATTERN, description="where nothing else is set")
    parameter: Text = Field(default="", description="name of the parameter with it")
    header: Text = Field(default="", description="name of the header with it; else it is {version} in the paths")


def require_known_placeholders(path: str, allowed: set[str]) -> None:
    """Raise ValueError if a path has a placeholder that is not allowed."""
    for gap in _PLACEHOLDER.findall(path):
        if gap not in allowed:
            raise ValueError(f"{path!r} holds {gap!r}; only {', '.join(sorted(allowed))} can be put in there")


class ReactionToPlatformError(StrEnum):
    """What follows from an error."""

    BUSY = "busy"
    """Request again later: a rate or quota is exhausted, or the platform is temporarily unavailable."""
    REFUSED = "refused"
    """Requesting again would not help."""
    EXPIRED = "expired"
    """Request again with fresh credentials."""


class ErrorRule(PlatformDeclarationBase):
    """An error by its status, code or message, and what it means; the first matching rule applies."""

    meaning: ReactionToPlatformError = Field(
        description="`busy`: ask again later; `refused`: asking again would not help; `expired`: ask with fresh "
        "credentials"
    )
    statuses: tuple[Count, ...] = Field(default=(), max_length=LISTED_MAX, description="of HTTP, any of which fits")
    codes: tuple[Text, ...] = Field(
        default=(), max_length=LISTED_MAX, description="any of which fits, as `errors.code` tells it"
    )
    pattern: Text = Field(default="", description="regular expression that the message holds")
    retry_after_seconds: float | None = Field(
        default=None, ge=0, le=SECONDS_MAX, description="where the answer names none"
    )

    @field_validator("pattern")
    @classmethod
    def _require_valid_pattern(cls, pattern: str) -> str:
        _compile_pattern(pattern)
        return pattern

    @model_validator(mode="after")
    def _require_condition(self) -> Self:
        if not (self.statuses or self.codes or self.pattern):
            raise ValueError("a rule for errors names statuses, codes or a pattern")
        return self


class ErrorFormat(PlatformDeclarationBase):
    """Where errors are reported besides the status of an answer."""

    code: JsonPathText | None = Field(default=None, description="where an answer tells the error's code; 0 is none")
    message: JsonPathText | None = Field(default=None, description="where it tells the sentence about it")
    wait_pattern: Text = Field(default="", description="its first group in a message is how many seconds to wait")
    rules: tuple[ErrorRule, ...] = Field(default=(), max_length=LISTED_MAX, description="the first that fits counts")

    @field_validator("wait_pattern")
    @classmethod
    def _require_group(cls, pattern: str) -> str:
        """Require a group: without one, nothing says which part of a message is the number."""
        if pattern and not _compile_pattern(pattern).groups:
            raise ValueError(f"{pattern!r} has no group; put the number of seconds in brackets, as in 'wait (\\d+) s'")
        return pattern


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
