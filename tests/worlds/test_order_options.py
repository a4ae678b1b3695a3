"""Each field of a request of orders is honoured: two of its values lead to outcomes that differ.

A new field needs its case: a field without one fails here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from sqlmodel import col, update

from api.http.models import OperatorRequest, Request
from api.http.pagination import PageQuery
from api.orders import context, requests
from api.orders.context import routes
from domain.orders.config import PlatformOptions
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.tables.orders import OrderSlice
from tests.support.orders import running_orders
from tests.support.waiting import eventually
from tests.worlds.orders.cases import (
    BACKFILL,
    CHOICE,
    CONFIG,
    ERRORS,
    FILTERS,
    FIRST,
    MIDDLE,
    NEXT,
    ORDERS,
    PAGES,
    QUICK,
    REASON,
    ROW_OF_REQUESTS,
    SETUP,
    SIGNED,
    SLICES,
    SLOW_RATE,
    SOURCE,
    SPAN_SECONDS,
    TIMELINE,
    TRIED,
    Case,
)
from tests.worlds.orders.shop import Shop

CASES: list[tuple[type[Any], Mapping[str, Case]]] = [
    (PlatformOptions, CONFIG),
    # What `is_paused` does is shown by tests/integration/test_order_standstill.py: others may claim at once.
    (requests.PlatformSetupRequest, SETUP | {"is_paused": Case(True, False)}),
    (requests.SliceActionRequest, {name: SIGNED[name] for name in ("who", "reason")}),
    (requests.SkipSliceRequest, {"reason": REASON, "who": SIGNED["who"]}),
    (requests.TryPlatformRequest, TRIED),
    (OperatorRequest, {name: SIGNED[name] for name in ("who", "reason")}),
    (requests.SliceSelectionRequest, CHOICE | SIGNED),
    (requests.SkipSlicesRequest, CHOICE | SIGNED),
    (requests.BackfillRequest, BACKFILL),
    (requests.BackfillsQuery, PAGES | {"state": Case("succeeded", "failed")}),
    (PageQuery, PAGES),
    (requests.SlicesQuery, SLICES),
    (requests.PlatformsQuery, PAGES | {"project_id": Case("own", "other")}),
    (requests.OrdersQuery, ORDERS),
    (requests.ExportMarkRequest, FILTERS),
    (requests.DownloadSourcePageQuery, SOURCE),
    (requests.TimelineQuery, TIMELINE),
    (requests.ReportRequest, {"day": Case("2026-01-01", "2026-01-02")}),
]
"""Those of actions are played by test_order_action_options.py."""
CASES_AT_ONCE = 5
"""Cases wait more than they compute, each on platforms of its own."""
NAMES: Mapping[type[Request], set[str]] = {
    context.PlatformPath: {"platform"},
    requests.SlicePath: {"platform", "slice"},
    requests.BackfillPath: {"platform", "backfill_id"},
    requests.PlatformDeliveryPath: {"platform", "delivery_id"},
    requests.ReportDayPath: {"platform", "day"},
}
"""Requests that only name what they are about."""


def list_models() -> Iterator[type[Any]]:
    """List what the routes of orders read of a request."""
    for route in routes:
        yield from filter(None, (route.body, route.query, route.headers, route.path_model))


def test_every_request_is_here() -> None:
    """One that a route reads has its cases, or only names what it is about."""
    assert {*list_models()} == {model for model, _ in CASES} | {*NAMES}
    assert {model: set(model.model_fields) for model in NAMES} == NAMES


@pytest.mark.parametrize(("model", "cases"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_every_field_has_a_case(model: type[Any], cases: Mapping[str, Case]) -> None:
    """A field without a visible effect may be one that is ignored."""
    assert set(model.model_fields) == set(cases)


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[Shop]:
    """API, worker and platforms."""
    async with running_orders(settings) as orders:
        yield Shop(orders)


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_configuration_makes_a_difference(shop: Shop) -> None:
    """With another value a platform is fetched otherwise; the same twice comes out the same, for comparison."""
    folder = shop.orders.api_client.settings.orders.credentials_folder
    outcomes = {}
    turns = asyncio.Semaphore(CASES_AT_ONCE)

    async def play(name: str, case: Case) -> None:
        pair = []
        async with turns:
            for value in (case.one, case.other):
                changes = {**case.beside, **({name: value} if name else {})}
                number = await shop.begin(case.scenario, {}, {**QUICK, "credentials": None})
                (folder / "withdrawn.json").write_text(json.dumps({"token": "no more"}))
                reply = await shop.orders.ask("PUT", f"/v1/platforms/{number}/config", json={**QUICK, **changes})
                assert reply.status == 200, (name, value, reply.body)
                pair.append(await _fetch_platform(shop, number, name, value))
        outcomes[name] = pair

    await asyncio.gather(*(play(name, case) for name, case in {"": Case(None, None), **CONFIG}.items()))
    one, other = outcomes.pop("")
    assert one == other
    assert [name for name, (one, other) in outcomes.items() if one == other] == []


async def _fetch_platform(shop: Shop, number: str, name: str, value: object) -> dict[str, Any]:
    """Fetch a platform once, and again where a sweep is due; say what came of it."""
    platform, most = shop.orders.platforms.by_number[number], 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, await shop.orders.under_way(number))
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch()) if name == "threads" else None
    waits_for_ever = (name, value) in (
        ("daily_quota", CONFIG["daily_quota"].one),
        ("credentials", CONFIG["credentials"].other),
    )
    is_over = await shop.fetch(number, bound_seconds=8 if waits_for_ever else 60)
    if watching:
        watching.cancel()
    if name == "sweep_after":
        await asyncio.sleep(1.2)
        await shop.fetch(number)
    found = await shop.look(number) | {"is_over": is_over, "many": most > 2}
    if name in ("requests_per_second", "burst"):
        times = platform.throttle.times
        shortest = min(late - early for early, late in zip(times, times[ROW_OF_REQUESTS - 1 :], strict=False))
        found["hurried"] = shortest < (ROW_OF_REQUESTS - 1) / SLOW_RATE / 2
    if name == "retryintv":
        found["pauses"] = await shop.list_pauses(number)
    return found


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_platform_makes_a_difference(shop: Shop) -> None:
    """Whose it is, what it is, where it is, what it can do, and who receives its alarms."""
    project_id, _ = await shop.orders.api_client.make_project("other")
    one, other = [
        await shop.begin(PlatformScenario(orders=count, span_seconds=SPAN_SECONDS), {}, QUICK) for count in (7, 9)
    ]
    named = {
        ("project_id", "own"): shop.orders.project_id,
        ("project_id", "other"): project_id,
        ("base_url", "one"): shop.orders.platforms.url(one),
        ("base_url", "other"): shop.orders.platforms.url(other),
        ("notify_url", "somebody"): f"{shop.orders.platforms.base}/nobody",
    }
    unheeded = []
    for name, case in SETUP.items():
        pair = []
        for value in (case.one, case.other):
            sent = {**case.beside, name: named.get((name, value), value) if isinstance(value, str) else value}
            config = {**QUICK, "starttime": "last 1 hours"} if name == "kind" else QUICK
            number = await shop.begin(case.scenario, sent, config)
            await shop.fetch(number)
            found = await shop.look(number)
            if value == "somebody":
                await eventually(shop.orders.events)
            found["alarms"] = bool(await shop.orders.events())
            pair.append(found)
        unheeded += [name] if pair[0] == pair[1] else []
    assert unheeded == []


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_question_makes_a_difference(shop: Shop) -> None:
    """Which platforms, slices, backfills and orders are listed, exported and drawn."""
    orders = shop.orders
    other_id, _ = await orders.api_client.make_project("other")
    one = await _with_history(shop)
    two = await shop.begin(PlatformScenario(orders=9, span_seconds=SPAN_SECONDS, seed=5), {"shop": "other"}, QUICK)
    await shop.begin(PlatformScenario(orders=0), {"project_id": other_id}, QUICK)
    await shop.fetch(two)
    named = {"one": one, "two": two, "own": orders.project_id, "other project": other_id}
    ids = [each.order_id for each in await orders.read_orders(one)]
    marks = await _take_marks(shop, one)
    latest = {one: marks[1], two: await _take_mark(shop, two)}
    base, admin = f"/v1/platforms/{one}", orders.ask

    async def as_project(method: str, path: str, **options: Any) -> Any:
        return await orders.api_client.ask(method, path, key=orders.key, **options)

    async def create_mark(_: str, path: str, *, params: dict[str, Any]) -> Any:
        return await orders.api_client.ask("POST", path, key=orders.key, json=params)

    def fit(path: str, name: str, value: Any) -> Any:
        special = {"an id": ids[0], "another id": ids[1], "before a change": marks[0], "after it": marks[1]}
        if name == "project_id" and value == "other":
            return other_id
        return special.get(str(value), named.get(str(value), value))

    source_rest = {"mark": marks[1], "page": 0, "page_size": 10}
    questions: list[tuple[Any, str, Mapping[str, Case], dict[str, Any]]] = [
        (admin, "/v1/platforms", dict(CASES)[requests.PlatformsQuery], {}),
        (admin, f"{base}/slices", SLICES, {}),
        (admin, f"{base}/backfills", dict(CASES)[requests.BackfillsQuery], {}),
        (admin, f"{base}/deliveries", PAGES, {}),
        (admin, f"{base}/timeline", TIMELINE, {}),
        (as_project, "/v1/orders", ORDERS, {}),
        (create_mark, "/v1/orders/marks", FILTERS, {}),
        (as_project, "/v1/orders/source", SOURCE, source_rest),
    ]
    unheeded = []
    for ask, path, cases, rest in questions:
        for name, case in cases.items():
            pair = []
            for value in (case.one, case.other):
                sent = {**rest, **case.beside, name: value}
                if value == NEXT:
                    sent[name] = (await ask("GET", path, params=_params({**rest, **case.beside}))).body["next_cursor"]
                params = _params({key: fit(path, key, each) for key, each in sent.items()})
                if name == "platform" and "mark" in params:
                    params["mark"] = latest[params["platform"]]
                reply = await ask("GET", path, params=params)
                assert reply.status in (200, 201), (path, name, value, reply.body)
                pair.append({key: each for key, each in reply.body.items() if key not in ("mark", "source_url")})
            unheeded += [f"{path} {name}"] if pair[0] == pair[1] else []
    assert unheeded == []


def _params(sent: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sent.items() if value is not None}


async def _with_history(shop: Shop) -> str:
    """Return a platform with slices in every state, and backfills that succeeded and failed."""
    orders = shop.orders
    told = {"notify_url": f"{orders.platforms.base}/nobody"}
    number = await shop.begin(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS), told, QUICK | {"interval": 600})
    platform = orders.platforms.by_number[number]
    await shop.fetch(number)
    times = [(FIRST, "2026-01-01T00:05:00Z"), ("2026-01-01T00:25:00Z", MIDDLE)]
    for (start, end), faults in zip(times, (PlatformFaults(), ERRORS), strict=True):
        platform.set(platform.scenario.model_copy(update={"faults": faults}))
        reply = await orders.ask("POST", f"/v1/platforms/{number}/backfill", json={"start": start, "end": end})
        await orders.engine.get_workflow_handle(reply.body["workflow_id"]).result()
    platform.market.clock.advance(600)
    await shop.fetch(number)
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
    rows = await orders.slices(number)
    async with orders.services.database.session() as session:
        is_first = col(OrderSlice.slice_id) == rows[0].slice_id
        await session.exec(update(OrderSlice).where(is_first).values(stale_told_at=rows[0].claimed_at))
    assert {row.done_at is None for row in rows} == {True, False}
    return number


async def _take_marks(shop: Shop, number: str) -> list[str]:
    """Return a mark before an order was changed, and one after it."""
    before, market = await _take_mark(shop, number), shop.orders.platforms.by_number[number].market
    market.create(market.now_us)
    market.clock.advance(1_300)
    await shop.fetch(number)
    return [before, await _take_mark(shop, number)]


async def _take_mark(shop: Shop, number: str) -> str:
    orders = shop.orders
    reply = await orders.api_client.ask("POST", "/v1/orders/marks", key=orders.key, json={"platform": number})
    assert reply.status == 201, reply.body
    mark: str = reply.body["mark"]
    return mark
