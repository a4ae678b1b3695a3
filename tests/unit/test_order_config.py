"""Configuration of orders: two levels, where each value comes from, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from domain.faults import Invalid
from domain.orders import config
from domain.orders.capability import Capability
from domain.orders.config import PlatformOptions, SettingOrigin

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CAPABILITY = Capability.model_validate(
    {
        "kind": "strict",
        "query": {
            "path": "/orders",
            "start": "from",
            "end": "to",
            "window_max_seconds": 1800,
            "newest_seconds": 180,
            "history_seconds": 90 * 86_400,
        },
        "paging": {
            "kind": "cursor",
            "parameter": "after",
            "size_parameter": "n",
            "size": 100,
            "size_max": 100,
            "next": "$.next",
            "rows_max": 25_000,
        },
        "clock": {"path": "/time"},
        "rate": {"per_second": 2, "burst": 4},
        "rows": {"list": "$.rows", "id": "$.id", "modified": "$.modified"},
    }
)


def in_force(defaults: PlatformOptions = PlatformOptions(), **own: Any) -> config.PlatformSettings:  # noqa: B008 (frozen)
    """What these options make."""
    return config.resolve_settings(1, defaults, PlatformOptions(**own), CAPABILITY)[0]


def test_each_value_comes_from_the_nearest_level() -> None:
    """The platform's own, else the default, else what its kind allows, else what is built in."""
    settings, origins = config.resolve_settings(
        7, PlatformOptions(interval=300, threads=2), PlatformOptions(threads=8), CAPABILITY
    )

    assert (settings.version, settings.threads, settings.interval, settings.burst, settings.retries) == (
        7,
        8,
        300,
        4,
        3,
    )
    assert {name: origins[name] for name in ("threads", "interval", "burst", "retries")} == {
        "threads": SettingOrigin.PLATFORM,
        "interval": SettingOrigin.DEFAULT,
        "burst": SettingOrigin.KIND,
        "retries": SettingOrigin.BUILT_IN,
    }


def test_what_is_built_in_keeps_within_what_a_kind_allows() -> None:
    """Else a platform that allows less could not be set up: its own values are set only afterwards."""
    narrow = CAPABILITY.model_copy(
        update={
            "query": CAPABILITY.query.model_copy(update={"window_max_seconds": 300}),
            "paging": CAPABILITY.paging.model_copy(update={"rows_max": 120}),
        }
    )
    settings, origins = config.resolve_settings(1, PlatformOptions(), PlatformOptions(), narrow)

    config.require_workable_settings("1", settings, narrow, NOW)
    assert (settings.interval, settings.max_rows_per_slice) == (295, 120)
    assert (origins["interval"], origins["max_rows_per_slice"]) == (SettingOrigin.KIND, SettingOrigin.KIND)
    assert (
        config.resolve_settings(1, PlatformOptions(), PlatformOptions(), CAPABILITY)[1]["interval"]
        is SettingOrigin.BUILT_IN
    )


def test_what_is_built_in_is_the_seed() -> None:
    """10 minutes, 5 minutes, 3 retries, 10 seconds, 4 threads, 5 seconds of overlap, 3 minutes to settle."""
    settings = in_force()

    assert settings.model_dump(include={"interval", "timeout", "retries", "retryintv", "threads"}) == {
        "interval": 600,
        "timeout": 300,
        "retries": 3,
        "retryintv": 10.0,
        "threads": 4,
    }
    assert (settings.overlap, settings.settle_lag) == (5, 180)


@pytest.mark.parametrize(
    "options", [{"interval": 0}, {"threads": 0}, {"retries": -1}, {"starttime": "yesterday"}, {"intervall": 600}]
)
def test_what_no_platform_could_use_is_refused(options: dict[str, Any]) -> None:
    """Each value has bounds of its own, and there are no other keys."""
    with pytest.raises(ValidationError):
        PlatformOptions(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"interval": 1800}, "allows at most 1800 s"),
        ({"interval": 5}, "must be shorter than interval"),
        ({"settle_lag": 60}, "at least 180 s old"),
        ({"max_rows_per_slice": 30_000}, "at most 25,000 orders"),
        ({"requests_per_second": 3}, "at most 2"),
        ({"burst": 5}, "at most 4"),
        ({"starttime": "2026-12-01T00:00:00Z"}, "lies in the future"),
        ({"starttime": "last 6 months"}, "further back"),
        ({"starttime": "last 9999 months"}, "after 1970"),
        ({"requests_per_second": 1e-300}, "more than a year"),
    ],
)
def test_what_this_platform_does_not_allow_is_refused(options: dict[str, Any], said: str) -> None:
    """The sentence names the value and what is allowed, and the field."""
    with pytest.raises(Invalid, match="Platform shop-1: ") as refused:
        config.require_workable_settings("shop-1", in_force(**options), CAPABILITY, NOW)

    assert said in refused.value.record.message
    assert refused.value.field in (*options, "overlap")


def test_a_platform_that_has_begun_keeps_its_beginning() -> None:
    """What was allowed when it began is not refused because time has gone by."""
    config.require_workable_settings(
        "shop-1", in_force(starttime="2026-01-01T00:00:00Z"), CAPABILITY, NOW, has_begun=True
    )


def test_what_fits_is_taken() -> None:
    """What is built in fits every platform that allows it."""
    config.require_workable_settings("shop-1", in_force(), CAPABILITY, NOW)


@pytest.mark.parametrize(
    ("starttime", "begins"),
    [
        ("last 2 hours", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("last 3 months", datetime(2026, 8, 22, 12, tzinfo=UTC)),
        ("2026-11-01T08:00:00+08:00", datetime(2026, 11, 1, tzinfo=UTC)),
    ],
)
def test_starttime_is_a_moment_or_a_distance(starttime: str, begins: datetime) -> None:
    """Seen from the platform's clock."""
    assert config.resolve_starttime(starttime, NOW) == begins


@pytest.mark.parametrize(
    ("sent", "kept"), [("last 1 hours", "last 1 hour"), ("last 1 month", "last 1 month"), ("last 2 day", "last 2 days")]
)
def test_the_unit_of_a_starttime_is_worded_as_its_number(sent: str, kept: str) -> None:
    """Both forms are taken, and mean the same."""
    assert PlatformOptions(starttime=sent).starttime == kept
    assert config.resolve_starttime(sent, NOW) == config.resolve_starttime(kept, NOW)


@pytest.mark.parametrize("starttime", ["last 99999999999 hours", "last 10000 days"])
def test_a_starttime_too_long_ago_is_refused_as_that(starttime: str) -> None:
    """With how far back is possible."""
    with pytest.raises(ValidationError, match=r"is too long ago\. Write at most 9999 hours, days, weeks or months"):
        PlatformOptions(starttime=starttime)
