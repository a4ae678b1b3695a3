"""The version of a platform's interface: declared once, set in the configuration, put where the record says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from clients.platforms import PlatformRefused, ReplayableAnswerLog
from domain.faults import Invalid
from domain.orders import config
from domain.orders.capability import Capability
from domain.orders.config import PlatformOptions, SettingOrigin
from domain.orders.declarations import ApiVersion
from domain.orders.known_platforms import SHOPIFY
from sims.platforms import checker
from sims.platforms.dialects.plain import PLAIN, VERSION_HEADER, VERSION_PARAMETER, WHOLE
from tests.support.platforms import list_orders, newest_copies, running_connector

PLAIN_NOW = datetime(2026, 1, 2, tzinfo=UTC)
ORDERS: dict[str, Any] = {"orders": 300, "span_seconds": 3_600}


def plain(where: str) -> Capability:
    """The plain record with its version 1 in some place, and another call for each order."""
    ways = {"path": {}, "query": {"parameter": VERSION_PARAMETER}, "header": {"header": VERSION_HEADER}}
    at = "/{version}" if where == "path" else ""
    calls = {name: getattr(PLAIN, name) for name in ("query", "clock")} | {"detail": WHOLE}
    return PLAIN.model_validate(
        {
            **PLAIN.model_dump(),
            "version": ApiVersion(value="v1", **ways[where]).model_dump(),
            **{name: {**call.model_dump(), "path": at + call.path} for name, call in calls.items()},
        }
    )


@pytest.mark.parametrize("where", ["path", "query", "header"])
@pytest.mark.parametrize("version", [None, "v7"])
async def test_every_call_names_the_version_where_its_record_says(where: str, version: str | None) -> None:
    """Pages, counts, the clock and calls for one order."""
    record = plain(where).replace_default_version_if_any(version)
    async with running_connector(record, **ORDERS, api_version=version or "v1", version_in=where) as here:
        await here.connector.fetch_platform_time()
        window = here.window(600)
        pages = await here.read(window)
        assert checker.check(here.truth(window), newest_copies(pages)).is_clean
        [part, *_] = list_orders(pages)
        whole, _ = await here.connector.fetch_details(part)
        assert whole.raw == part.raw


@pytest.mark.parametrize("where", ["path", "query", "header"])
async def test_a_version_that_the_platform_does_not_answer_is_refused(where: str) -> None:
    """In its own words."""
    async with running_connector(plain(where), **ORDERS, api_version="v2", version_in=where) as here:
        with pytest.raises(PlatformRefused, match="answers version v2"):
            await here.read(here.window(600))


async def test_shopify_goes_on_with_its_next_version() -> None:
    """Its record's own is served for a year only."""
    async with running_connector(
        SHOPIFY.replace_default_version_if_any("2026-04"), kind="shopify", **ORDERS, api_version="2026-04"
    ) as here:
        window = here.window(600)
        assert checker.check(here.truth(window), newest_copies(await here.read(window))).is_clean


@pytest.mark.parametrize("where", ["path", "query", "header"])
async def test_what_another_version_told_is_not_taken_for_this_one(where: str) -> None:
    """An attempt that goes on after the setting was changed asks anew."""
    async with running_connector(plain(where), **ORDERS, api_version="v1", version_in=where) as here:
        await here.read(here.window(600))
        other = plain(where).replace_default_version_if_any("v2")
        here.platform.set(here.platform.scenario.model_copy(update={"api_version": "v2"}))
        asked = here.platform.stats()["calls"]["told"]
        connector = here.again(ReplayableAnswerLog.decode(here.connector.answer_log.encode()), other)
        assert await connector.fetch_row_count(here.window(600)) is not None
        assert here.platform.stats()["calls"]["told"] == asked + 1


def test_a_version_is_a_setting_of_each_platform() -> None:
    """By default its record's; one for a platform without any is refused."""
    settings, origins = config.resolve_settings(1, PlatformOptions(), PlatformOptions(), SHOPIFY)
    assert (settings.api_version, origins["api_version"]) == ("2025-01", SettingOrigin.KIND)
    settings, origins = config.resolve_settings(1, PlatformOptions(), PlatformOptions(api_version="2026-04"), SHOPIFY)
    assert (
        settings.apply_rate_and_api_version(SHOPIFY).put_version_into_paths_and_parameters().query.path
        == "/admin/api/2026-04/orders.json"
    )
    assert origins["api_version"] is SettingOrigin.PLATFORM
    settings, _ = config.resolve_settings(1, PlatformOptions(), PlatformOptions(api_version="2026-04"), PLAIN)
    with pytest.raises(Invalid, match="api_version is 2026-04; the record of plain names no place"):
        config.require_workable_settings("7", settings, PLAIN, PLAIN_NOW)


@pytest.mark.parametrize("value", ["", "../x", "a/b", "a b", "..", "é", "x" * 41])
def test_a_version_that_would_lead_elsewhere_is_refused(value: str) -> None:
    """It is put into paths as it is."""
    with pytest.raises(ValidationError):
        PlatformOptions(api_version=value)
    with pytest.raises(ValidationError):
        ApiVersion(value=value)


@pytest.mark.parametrize(
    "change",
    [
        {"version": {"value": "v1"}},
        {"version": {"value": "v1", "header": "A", "parameter": "b"}},
        {"query": {**PLAIN.query.model_dump(), "path": "/{version}/orders"}},
        {"version": {"value": "v1", "header": "A"}, "clock": {"path": "/{version}/time"}},
    ],
)
def test_a_version_is_named_in_one_way(change: dict[str, Any]) -> None:
    """Declared and used nowhere, or used and not declared, it would be left out in silence."""
    with pytest.raises(ValidationError, match="named in one way"):
        Capability.model_validate({**PLAIN.model_dump(), **change})


def test_other_gaps_in_paths_are_refused() -> None:
    """A platform would be asked for them unchanged."""
    with pytest.raises(ValidationError, match=r"holds '\{shop\}'"):
        Capability.model_validate({**PLAIN.model_dump(), "clock": {"path": "/{shop}/time"}})
