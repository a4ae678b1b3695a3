"""Configuration in two levels: defaults that all platforms share, and what a platform sets of its own.

A key that a platform does not set is taken from the defaults, else from what its kind allows or what is built in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from domain.faults import Invalid, format_count
from domain.orders import windows
from domain.orders.capability import Capability
from domain.orders.declarations import BURST_RETURNS_MAX_SECONDS, VERSION_PATTERN

REPEATED_HOUR_SECONDS: Final = 3 * 3_600
"""How much longer a query is whose bounds lie in an repeated hour."""

DEFAULT_LEVEL: Final = "default"
"""The level of the configuration that all platforms share, in place of a platform's name."""

_LAST = re.compile(r"last ([1-9][0-9]*) (hour|day|week|month)s?")
_LAST_MAX: Final = 9_999
_DAYS = {"hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.0}


def _require_valid_starttime_and_word_unit(starttime: str) -> str:
    if last := _LAST.fullmatch(starttime):
        if int(last[1]) > _LAST_MAX:
            raise ValueError(
                f"{starttime!r} is too long ago. Write at most {_LAST_MAX} hours, days, weeks or months, and no time "
                "before 1971; the kind of a platform may allow less."
            )
        return f"last {format_count(int(last[1]), last[2])}".replace(",", "")
    try:
        moment = datetime.fromisoformat(starttime)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not 1970 < moment.year < 2200:
        raise ValueError(
            f"{starttime!r} is no time to start from. Write a moment with its zone, like 2026-08-01T00:00:00Z, "
            "or “last 3 months” (hours, days, weeks, months)."
        )
    return starttime


StartTime = Annotated[str, AfterValidator(_require_valid_starttime_and_word_unit)]


class PlatformOptions(BaseModel):
    """Options of one level; a missing one comes from the level above."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    starttime: StartTime | None = Field(
        default=None, max_length=40, description="a moment, or “last 3 months”; resolved once, kept"
    )
    interval: int | None = Field(default=None, ge=1, le=2_678_400, description="seconds of a slice")
    timeout: int | None = Field(default=None, ge=1, le=86_400, description="seconds after which an attempt is ended")
    retries: int | None = Field(default=None, ge=0, le=100, description="retries of a slice after its first attempt")
    retryintv: float | None = Field(
        default=None, ge=0, le=3_600, description="seconds before the first retry; the nth waits n times as long"
    )
    threads: int | None = Field(default=None, ge=1, le=100, description="slices read at a time, on each worker")
    overlap: int | None = Field(default=None, ge=0, le=3_600, description="seconds of the slice before, read again")
    settle_lag: int | None = Field(
        default=None, ge=0, le=2_592_000, description="seconds that an order may take to show up; younger is not read"
    )
    sweep_after: int | None = Field(
        default=None, ge=0, le=2_592_000, description="seconds after which a slice is read once more; 0 for never"
    )
    max_rows_per_slice: int | None = Field(
        default=None, ge=1, le=100_000, description="a slice with more orders splits itself"
    )
    requests_per_second: float | None = Field(default=None, gt=0, le=10_000, description="over all workers")
    burst: int | None = Field(default=None, ge=1, le=10_000, description="requests that may come at once")
    daily_quota: int | None = Field(default=None, ge=1, le=10**9, description="requests a day, over all workers")
    credentials: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="NAME of a file NAME.json in HAULAGE_ORDERS__CREDENTIALS_FOLDER",
    )
    api_version: str | None = Field(
        default=None,
        pattern=VERSION_PATTERN,
        description="the version of the platform's interface that is asked, where its record lets you choose",
    )


BUILT_IN_OPTIONS: Final = PlatformOptions(
    starttime="last 3 months",
    interval=600,
    timeout=300,
    retries=3,
    retryintv=10,
    threads=4,
    overlap=5,
    settle_lag=180,
    sweep_after=900,
    max_rows_per_slice=10_000,
)


class SettingOrigin(StrEnum):
    """The level that a value comes from."""

    PLATFORM = "platform"
    DEFAULT = "default"
    BUILT_IN = "built_in"
    KIND = "kind"


class PlatformSettings(BaseModel):
    """Settings in force for a platform, and their version."""

    model_config = ConfigDict(frozen=True)

    version: int
    starttime: StartTime
    interval: int
    timeout: int
    retries: int
    retryintv: float
    threads: int
    overlap: int
    settle_lag: int
    sweep_after: int
    max_rows_per_slice: int
    requests_per_second: float
    burst: int
    daily_quota: int | None
    credentials: str | None
    api_version: str | None = None

    def apply_rate_and_api_version(self, capability: Capability) -> Capability:
        """Return the capability limited to the configured rate, and with the configured API version."""
        rate = {"per_second": self.requests_per_second, "burst": self.burst, "per_day": self.daily_quota}
        adjusted = capability.model_copy(update={"rate": capability.rate.model_copy(update=rate)})
        return adjusted.replace_default_version_if_any(self.api_version)


def resolve_settings(
    version: int, defaults: PlatformOptions, own: PlatformOptions, capability: Capability
) -> tuple[PlatformSettings, Mapping[str, SettingOrigin]]:
    """Return the settings in force, and which level each value comes from."""
    levels = [
        (SettingOrigin.PLATFORM, own),
        (SettingOrigin.DEFAULT, defaults),
        (SettingOrigin.KIND, _build_default_options_within_limits(capability)),
    ]
    levels.append((SettingOrigin.BUILT_IN, BUILT_IN_OPTIONS))
    values: dict[str, Any] = {}
    origins: dict[str, SettingOrigin] = {}
    for name in PlatformOptions.model_fields:
        values[name], origins[name] = _find_first_value(name, levels)
    return PlatformSettings(version=version, **values), origins


def _build_default_options_within_limits(capability: Capability) -> PlatformOptions:
    """Return the built-in options within the limits of the kind, so that a stricter platform can be set up."""
    longest, rows_max = capability.query.window_max_seconds, capability.paging.rows_max
    interval, rows = _get_built_in_option("interval"), _get_built_in_option("max_rows_per_slice")
    if longest is not None:
        interval = min(interval, max(1, int(longest) - _get_built_in_option("overlap")))
    return PlatformOptions(
        requests_per_second=capability.rate.per_second,
        burst=capability.rate.burst,
        daily_quota=capability.rate.per_day,
        settle_lag=max(_get_built_in_option("settle_lag"), int(capability.query.newest_seconds)),
        api_version=capability.version.value if capability.version else None,
        interval=interval if interval < _get_built_in_option("interval") else None,
        max_rows_per_slice=rows_max if rows_max is not None and rows_max < rows else None,
    )


def _get_built_in_option(name: str) -> int:
    value: int = getattr(BUILT_IN_OPTIONS, name)
    return value


def _find_first_value(name: str, levels: Sequence[tuple[SettingOrigin, PlatformOptions]]) -> tuple[Any, SettingOrigin]:
    for origin, options in levels:
        value = getattr(options, name)
        if value is not None:
            return value, origin
    return None, SettingOrigin.BUILT_IN


def is_relative_starttime(starttime: str) -> bool:
    """Whether a starttime means another moment each time it is resolved."""
    return _LAST.fullmatch(starttime) is not None


def resolve_starttime(starttime: str, platform_now: datetime) -> datetime:
    """Return the first second whose orders are fetched."""
    last = _LAST.fullmatch(starttime)
    if last is None:
        return windows.floor_to_second(datetime.fromisoformat(starttime))
    return windows.floor_to_second(platform_now - timedelta(days=int(last[1]) * _DAYS[last[2]]))


def require_workable_settings(
    platform: str, settings: PlatformSettings, capability: Capability, now: AwareDatetime, *, has_begun: bool = False
) -> None:
    """Refuse settings that cannot work with this platform.

    Args:
        now: The platform's time.
        has_begun: Whether its first claim has fixed the starttime, however long ago that is by now.

    Raises:
        Invalid: The message says what was set and what is allowed.
    """
    query, paging = capability.query, capability.paging
    asked = settings.interval + settings.overlap
    if query.time_format.zone is not None:
        asked += REPEATED_HOUR_SECONDS
    if query.window_max_seconds is not None and asked > query.window_max_seconds:
        raise _build_config_fault(
            platform,
            "interval",
            f"interval {settings.interval} s with overlap {settings.overlap} s asks for {asked} s at a time"
            + ("" if query.time_format.zone is None else ", with the repeated hour when clocks are put back")
            + f"; {capability.kind} allows at most {query.window_max_seconds:.0f} s",
        )
    if settings.interval < query.window_min_seconds:
        raise _build_config_fault(
            platform,
            "interval",
            f"interval is {settings.interval} s; {capability.kind} allows at least {query.window_min_seconds:.0f} s",
        )
    if settings.overlap >= settings.interval:
        raise _build_config_fault(
            platform, "overlap", f"overlap {settings.overlap} s must be shorter than interval {settings.interval} s"
        )
    if settings.settle_lag < query.newest_seconds:
        raise _build_config_fault(
            platform,
            "settle_lag",
            f"settle_lag is {settings.settle_lag} s; {capability.kind} answers only "
            f"for times at least {query.newest_seconds:.0f} s old",
        )
    if paging.rows_max is not None and settings.max_rows_per_slice > paging.rows_max:
        raise _build_config_fault(
            platform,
            "max_rows_per_slice",
            f"max_rows_per_slice is {settings.max_rows_per_slice:,}; {capability.kind} tells at most "
            f"{paging.rows_max:,} orders of a query",
        )
    if settings.api_version is not None and capability.version is None:
        raise _build_config_fault(
            platform,
            "api_version",
            f"api_version is {settings.api_version}; the record of {capability.kind} names no place for a version",
        )
    _require_allowed_rate(platform, settings, capability)
    if not has_begun:
        _require_allowed_start(platform, settings, capability, now)


def _require_allowed_rate(platform: str, settings: PlatformSettings, capability: Capability) -> None:
    rate = capability.rate
    if settings.burst > settings.requests_per_second * BURST_RETURNS_MAX_SECONDS:
        raise _build_config_fault(
            platform,
            "requests_per_second",
            f"requests_per_second is {settings.requests_per_second:g}: a burst of {settings.burst} is back after more "
            "than a year",
        )
    limits = (
        ("requests_per_second", settings.requests_per_second, rate.per_second),
        ("burst", settings.burst, rate.burst),
        ("daily_quota", settings.daily_quota, rate.per_day),
    )
    for name, value, limit in limits:
        if limit is not None and value is not None and value > limit:
            raise _build_config_fault(
                platform, name, f"{name} is {value:g}; {capability.kind} allows at most {limit:g}"
            )


def _require_allowed_start(platform: str, settings: PlatformSettings, capability: Capability, now: datetime) -> None:
    begins = resolve_starttime(settings.starttime, now)
    if begins.year <= 1970:
        raise _build_config_fault(
            platform, "starttime", f"starttime {settings.starttime} lies in {begins.year}; it must be after 1970"
        )
    if begins >= now:
        raise _build_config_fault(
            platform, "starttime", f"starttime {settings.starttime} lies in the future; it must be before now"
        )
    history = capability.query.history_seconds
    if history is not None and begins < windows.floor_to_second(now - timedelta(seconds=history)):
        raise _build_config_fault(
            platform,
            "starttime",
            f"starttime {settings.starttime} is further back than {capability.kind} tells orders, "
            f"which is {history / 86_400:.0f} days",
        )


def _build_config_fault(platform: str, field: str, what: str) -> Invalid:
    return Invalid("config_invalid", f"Platform {platform}: {what}.", "Change the value, or leave it out.", field=field)
