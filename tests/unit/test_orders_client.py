"""The client of orders: what it sends, how it follows a platform, and that its models are those of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from api.orders import requests, responses
from domain.orders import slices
from haulage import RequestRefused
from haulage.orders import (
    Backfill,
    BackfillState,
    LastSliceReread,
    ListedPlatform,
    Order,
    OrderMark,
    Orders,
    OrderSlice,
    Platform,
    PlatformConfig,
    PlatformSchedule,
    PlatformSetup,
    SettingValue,
    SliceChoice,
    SlicesActionResult,
    SliceState,
    UnchangedSlice,
)
from tests.support.api_peer import ApiPeer, problem, running_api_peer

TEN = datetime(2026, 11, 20, 10, tzinfo=UTC)
PLATFORM = {
    "platform": "shop-1",
    "project_id": "prj_1",
    "kind": "plain",
    "shop": "s",
    "base_url": "https://shop.example.com",
    "claimed_to": "2026-11-20T10:00:00Z",
    "complete_to": "2026-11-20T09:00:00Z",
    "slices_open": 6,
    "added_later": 1,
}


@pytest.fixture
async def peer() -> AsyncIterator[ApiPeer]:
    """An API with scripted responses."""
    async with running_api_peer() as running:
        yield running


@pytest.fixture
async def orders(peer: ApiPeer) -> AsyncIterator[Orders]:
    """A client of it."""
    async with Orders(peer.url, "key", patience_seconds=30.0) as opened:
        yield opened


async def test_a_number_with_a_mark_is_no_other_platform(peer: ApiPeer, orders: Orders) -> None:
    """`shop-1#2` changed the address of `shop-1`: what follows the mark is no part of a path."""
    setup = PlatformSetup(project_id="prj_1", kind="plain", shop="s", base_url="https://shop.example.com")
    for number in ("shop-1#2", "shop-1?x=1", "a/../shop-1"):
        peer.says(422, problem(422, "invalid_request", "There is no such number."))
        with pytest.raises(RequestRefused):
            await orders.set_up(number, setup)
    assert [seen.line for seen in peer.seen] == [
        "PUT /v1/platforms/shop-1#2",
        "PUT /v1/platforms/shop-1?x=1",
        "PUT /v1/platforms/a/../shop-1",
    ]


async def test_a_platform_is_set_up_and_configured(peer: ApiPeer, orders: Orders) -> None:
    """Only what is given is sent; None among the options is sent, because it takes a value back."""
    peer.says(200, PLATFORM)
    peer.says(200, {"platform": "shop-1", "version": 2, "effective": {}, "inherited": {}, "own": {}})

    await orders.set_up("shop-1", PlatformSetup(project_id="prj_1", kind="plain", shop="s", base_url="https://x"))
    config = await orders.configure("shop-1", interval=600, credentials=None)

    assert [(seen.line, seen.body) for seen in peer.seen] == [
        ("PUT /v1/platforms/shop-1", {"project_id": "prj_1", "kind": "plain", "shop": "s", "base_url": "https://x"}),
        ("PATCH /v1/platforms/shop-1/config", {"interval": 600, "credentials": None}),
    ]
    assert config.version == 2


async def test_a_platform_is_watched_until_it_is_complete(peer: ApiPeer, orders: Orders) -> None:
    """A state whose watermarks and slices are repeated is yielded once."""
    for change in (
        {},
        {"lag_seconds": 5},
        {"slices_open": 1},
        {"slices_open": 0, "complete_to": "2026-11-20T10:00:00Z"},
    ):
        peer.says(200, PLATFORM | change)

    states = [
        (platform.slices_open, platform.complete_to == TEN) async for platform in orders.watch("shop-1", until=TEN)
    ]

    assert states == [(6, False), (1, False), (0, True)]


async def test_lists_are_read_page_by_page(peer: ApiPeer, orders: Orders) -> None:
    """With the filters on every page."""
    one = {"platform": "shop-1", "shop": "s", "order_id": "1", "modified_at": TEN.isoformat(), "version": 1}
    peer.says(200, {"items": [one | {"order": {"id": 2**60}}], "next_cursor": "a"})
    peer.says(200, {"items": [one | {"order_id": "2", "order": {}}], "next_cursor": None})

    found = [each async for each in orders.list_orders(platform="shop-1", modified_after=TEN)]

    assert [(each.order_id, each.order) for each in found] == [("1", {"id": 2**60}), ("2", {})]
    assert [seen.query.get("cursor") for seen in peer.seen] == [None, "a"]
    assert {seen.query["modified_after"] for seen in peer.seen} == {TEN.isoformat()}


async def test_slices_are_listed_by_what_has_failed(peer: ApiPeer, orders: Orders) -> None:
    """Themselves, or their last sweep; nothing is sent of what is not asked for."""
    for _ in range(2):
        peer.says(200, {"items": [], "next_cursor": None})

    assert [each async for each in orders.list_slices("shop-1", state=SliceState.FAILED)] == []
    assert [each async for each in orders.list_slices("shop-1", has_failed_sweep=True)] == []

    assert [dict(seen.query) for seen in peer.seen] == [
        {"state": "failed", "limit": "100"},
        {"sweep": "failed", "limit": "100"},
    ]


async def test_slices_are_chosen_by_id_or_by_cause(peer: ApiPeer, orders: Orders) -> None:
    """Each action has its address; what is left unchanged says why."""
    unchanged: dict[str, Any] = {"slice": "s2", "code": "slice_not_failed", "detail": "It is done."}
    for _ in range(3):
        peer.says(200, {"done": ["s1"], "unchanged": [unchanged], "next_start": None})

    await orders.redo("shop-1", SliceChoice(slices=["s1", "s2"]))
    await orders.split("shop-1", SliceChoice(all=True))
    result = await orders.skip("shop-1", SliceChoice(cause="platform_refused", start=TEN), "gone there")

    assert [(seen.line.rpartition(":")[2], seen.body) for seen in peer.seen] == [
        ("redo", {"slices": ["s1", "s2"]}),
        ("split", {"all": True}),
        ("skip", {"cause": "platform_refused", "start": "2026-11-20T10:00:00Z", "reason": "gone there"}),
    ]
    assert (result.done, result.unchanged[0].code) == (["s1"], "slice_not_failed")


async def test_a_refusal_has_the_code_of_the_api(peer: ApiPeer, orders: Orders) -> None:
    """A paused platform claims nothing."""
    peer.says(409, problem(409, "platform_paused", "Platform shop-1 is paused."))

    with pytest.raises(RequestRefused) as refused:
        await orders.trigger("shop-1")

    assert (refused.value.code, peer.seen[0].line) == ("platform_paused", "POST /v1/platforms/shop-1/trigger")


@pytest.mark.parametrize(
    ("server", "client"),
    [
        pytest.param(requests.PlatformSetupRequest, PlatformSetup, id="setup"),
        pytest.param(requests.SliceSelectionRequest, SliceChoice, id="choice of slices"),
        pytest.param(responses.ListedPlatformResponse, ListedPlatform, id="listed platform"),
        pytest.param(responses.PlatformResponse, Platform, id="platform"),
        pytest.param(responses.PlatformConfigResponse, PlatformConfig, id="configuration"),
        pytest.param(responses.SettingValueAndOrigin, SettingValue, id="value"),
        pytest.param(responses.PlatformScheduleResponse, PlatformSchedule, id="schedule"),
        pytest.param(responses.SliceResponse, OrderSlice, id="slice"),
        pytest.param(responses.LastSliceRereadResponse, LastSliceReread, id="requested reading"),
        pytest.param(responses.SlicesActionResponse, SlicesActionResult, id="changed slices"),
        pytest.param(responses.UnchangedSliceAndReason, UnchangedSlice, id="unchanged slice"),
        pytest.param(responses.BackfillResponse, Backfill, id="backfill"),
        pytest.param(responses.OrderResponse, Order, id="order"),
        pytest.param(responses.ExportMarkResponse, OrderMark, id="mark"),
    ],
)
def test_models_have_the_fields_of_the_api(server: type[BaseModel], client: type[BaseModel]) -> None:
    """All of them, and no others."""
    assert client.model_fields.keys() == server.model_fields.keys()


@pytest.mark.parametrize(
    ("server", "client"),
    [(slices.SliceState, SliceState), (slices.BackfillState, BackfillState), (slices.RereadState, BackfillState)],
)
def test_states_are_those_of_the_api(server: Iterable[str], client: Iterable[str]) -> None:
    """By their values."""
    assert list(client) == list(server)
