"""Platforms watched and steered through the public API."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

import worker
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.orders import ledger
from stores.tables.orders import OrderSlice
from tests.support.downloads import parse_csv
from tests.support.orders import SIGNED, Orders, count_findings, running_orders, set_up_platform
from tests.support.selecting import mark_long_except
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
NARROW = PLAIN.model_copy(
    update={"query": PLAIN.query.model_copy(update={"window_max_seconds": 1_800.0, "newest_seconds": 60.0})}
)


async def list_failed_slices(orders: Orders) -> list[dict[str, Any]]:
    """The failed set."""
    reply = await orders.ask("GET", "/v1/platforms/shop-1/slices?state=failed")
    items: list[dict[str, Any]] = reply.body["items"]
    return items


async def test_a_failed_slice_holds_complete_to_until_it_is_skipped(settings: Settings) -> None:
    """It is announced, listed with its reason, and no later success hides it."""
    async with running_orders(settings) as orders:
        await set_up_platform(
            orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1)), retries=0
        )
        await orders.fetch()
        held = await orders.row()
        [first, *_] = sorted((await list_failed_slices(orders)), key=lambda each: each["slice"])
        status = await orders.status()

        async def are_all_told() -> bool:
            return bool((await orders.events()).count("orders.slice_failed") == status["slices_failed"])

        await eventually(are_all_told)
        assert first["fault"]["code"] == "platform_busy"
        assert held.complete_to == held.starts_at

        path = f"/v1/platforms/shop-1/slices/{first['slice']}"
        nameless = await orders.ask("POST", f"{path}/skip", json={"reason": ""})
        skipped = await orders.ask("POST", f"{path}/skip", json={"reason": "the shop was closed"})

        assert nameless.status == 422
        assert (skipped.body["state"], skipped.body["reason"]) == ("skipped", "the shop was closed")
        after = await orders.row()
        assert after.complete_to == TimeWindow.model_validate(first["window"]).end
        again = await orders.ask("POST", f"{path}/skip", json={"reason": "once more"})
        assert again.code == "slice_not_failed"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        (
            "GET",
            "/slices/yesterday",
            None,
            404,
            "under this slice: “yesterday” is no slice's id; send its start and end in UTC",
        ),
        pytest.param(
            "GET",
            "/slices/20261132T100000Z:20261132T101000Z",
            None,
            404,
            "its start and end in UTC",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "GET", "/slices/20261120T101000Z:20261120T100000Z", None, 404, "send a later end", marks=pytest.mark.long
        ),
        pytest.param(
            "GET",
            "/slices/20261120T100000Z:20261120T101000Z",
            None,
            404,
            "/v1/platforms/shop-1/slices lists",
            marks=pytest.mark.long,
        ),
        ("POST", "/slices:redo", {"slices": ["yesterday"]}, 422, "like 20261120T100000Z:20261120T101000Z"),
        ("POST", "/slices:redo", {"slices": ["20261120T100000Z:20261120T101000Z"]}, 202, "shop-1/slices lists"),
        (
            "POST",
            "/backfill",
            {"start": "2026-01-02T10:00:00Z", "end": "2026-01-02T09:00:00Z"},
            422,
            "start 2026-01-02T10:00:00+00:00 is not before end 2026-01-02T09:00:00+00:00; send a later end",
        ),
        pytest.param(
            "POST",
            "/backfill",
            {"start": "2026-01-02T10:00:00Z", "end": "2026-01-03T10:00:01Z"},
            422,
            "1 day, 0:00:01 apart; send at most 12 hours at a time",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "GET",
            "/timeline?start=2026-01-02T10:00:00Z&end=2026-01-02T10:00:00Z",
            None,
            422,
            "send a later end",
            marks=pytest.mark.long,
        ),
        ("GET", "/timeline?start=2199-01-01T00:00:00Z", None, 422, "Send `end` too"),
    ],
)
async def test_a_wrong_span_or_id_is_refused_with_a_way_out(
    settings: Settings, method: str, path: str, body: dict[str, Any] | None, status: int, said: str
) -> None:
    """In words, not as a pattern; a later end is asked for where the end comes first."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up()
        reply = await orders.ask(method, f"/v1/platforms/shop-1{path}", json=body)
    assert reply.status == status
    assert said in str(reply.body)


async def test_a_slice_that_cannot_be_steered_says_what_to_do_instead(settings: Settings) -> None:
    """By its state, and by its name; one of a second has no halves."""
    async with running_orders(settings) as orders:
        await set_up_platform(
            orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1)), retries=0
        )
        await orders.fetch()
        [first, second, *_] = await orders.slices()
        async with orders.services.database.session() as session:
            row = await session.get_one(OrderSlice, second.slice_id)
            row.end_at = row.start_at + timedelta(seconds=1)
            session.add(row)
        names = [
            str(TimeWindow(start=first.start_at, end=first.end_at)),
            str(TimeWindow(start=row.start_at, end=row.end_at)),
        ]
        paths = [f"/v1/platforms/shop-1/slices/{name}" for name in names]
        short = await orders.ask("POST", f"{paths[1]}/split")
        await orders.ask("POST", f"{paths[0]}/split")
        halved = await orders.ask("POST", f"{paths[0]}/redo")
        await orders.ask("POST", f"{paths[1]}/skip", json={"reason": "the shop was closed"})
        skipped = await orders.ask("POST", f"{paths[1]}/redo")

    assert (short.code, halved.code, skipped.code) == ("slice_too_short", "slice_not_ended", "slice_not_ended")
    assert "Redo or skip it" in short.body["detail"]
    assert names[0] in halved.body["detail"]
    assert "Its halves are slices of their own" in halved.body["detail"]
    assert "given up" in skipped.body["detail"]


@pytest.mark.parametrize("way", mark_long_except(["redo", "split"], ["split"]))
async def test_a_failed_slice_is_completed_once_its_cause_is_mended(settings: Settings, way: str) -> None:
    """By reading it again, or in halves; then nothing is missing."""
    async with running_orders(settings) as orders:
        await set_up_platform(
            orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1)), retries=0
        )
        await orders.fetch()
        platform = orders.platforms.by_number["shop-1"]
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))

        for each in await list_failed_slices(orders):
            reply = await orders.ask("POST", f"/v1/platforms/shop-1/slices/{each['slice']}/{way}", json=None)
            assert reply.status in (200, 202), reply.body

        async def whole() -> bool:
            await orders.fetch()
            return await orders.is_complete()

        await eventually(whole)
        assert count_findings(await orders.findings()) == dict.fromkeys(count_findings(await orders.findings()), 0)


async def test_retries_wait_longer_each_time_and_then_it_has_failed(settings: Settings) -> None:
    """One attempt and `retries` more, with pauses of n times `retryintv`."""
    async with running_orders(settings) as orders:
        await set_up_platform(
            orders, PlatformScenario(orders=9, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1)), retries=2
        )
        await orders.fetch()

        [first, *_] = await list_failed_slices(orders)
        assert first["attempts"] == 3
        assert first["fault"]["code"] == "platform_busy"


@pytest.mark.long
async def test_pages_lie_in_the_store_as_they_were_told(settings: Settings) -> None:
    """Parquet, by platform and day, named in the ledger."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
        await orders.fetch()
        keys = [row.raw_key for row in await orders.slices()]
        assert all(key and key.startswith("orders-raw/platform=shop-1/day=2026-01-0") for key in keys)
        body = await orders.services.objects.get(str(keys[0]))

    table = await asyncio.to_thread(lambda: pq.read_table(io.BytesIO(body)))
    assert table.column_names == ["page", "asked_at", "body"]
    assert b'"orders"' in table["body"][0].as_py()


async def test_orders_are_exported_as_they_were_at_a_mark(settings: Settings) -> None:
    """By the download center, from our own address, whatever is fetched meanwhile."""
    async with running_orders(settings, queues=worker.list_queue_names()) as orders:
        starttime = await set_up_platform(orders, PlatformScenario(orders=250, span_seconds=SPAN_SECONDS, speed=0))
        await orders.fetch()
        mark = (
            await orders.api_client.ask("POST", "/v1/orders/marks", key=orders.key, json={"platform": "shop-1"})
        ).body
        frozen = {copy.order_id for copy in await orders.read_orders()}
        platform = orders.platforms.by_number["shop-1"]
        for number in range(30):
            platform.market.modify(number, platform.market.now_us)
            platform.market.create(platform.market.now_us)
        platform.market.clock.advance(2_000)
        await orders.configure(starttime=starttime, interval=600)
        await orders.fetch()
        assert len(await orders.read_orders()) >= len(frozen) + 30

        headers = {"Authorization": f"Bearer {orders.key}"}
        body = {"source_url": mark["source_url"], "headers": headers, "page_size": 100}
        reply = await orders.api_client.ask("POST", "/v1/downloads?wait=60", key=orders.key, json=body)
        assert reply.status == 200, reply.body
        [heads, *rows] = parse_csv(reply.body.encode())

    assert mark["total"] == len(frozen) == len(rows)
    assert {row[heads.index("order_id")] for row in rows} == frozen
    assert mark["source_url"].startswith("http://127.0.0.1")


async def test_pages_at_a_mark_are_the_same_in_whatever_order_they_are_asked_for(settings: Settings) -> None:
    """Whether a process goes on from the page before or skips to one; a mark that is over, or none, is refused."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS))
        await orders.fetch()
        mark = (
            await orders.api_client.ask("POST", "/v1/orders/marks", key=orders.key, json={"platform": "shop-1"})
        ).body

        async def page(number: int, name: str = mark["mark"]) -> Any:
            query = f"platform=shop-1&mark={name}&page={number}&page_size=7"
            return (await orders.api_client.ask("GET", f"/v1/orders/source?{query}", key=orders.key)).body

        last = mark["total"] // 7
        skipped = [(await page(number))["data"] for number in reversed(range(last + 1))]
        followed = [(await page(number))["data"] for number in range(last + 1)]
        revision = mark["mark"].partition("-")[0]
        codes = [(await page(0, name))["code"] for name in (f"{revision}-1000000000", f"9{mark['mark']}")]

    assert followed == skipped[::-1]
    assert len({row["order_id"] for rows in followed for row in rows}) == mark["total"]
    assert codes == ["mark_gone", "not_found"]


async def test_a_projects_orders_are_listed_page_by_page(settings: Settings) -> None:
    """Those modified last first, each once; another project sees none."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, crowd_share=0.5))
        await orders.fetch()
        _, strangers_key = await orders.api_client.make_project("stranger")
        seen, cursor = [], ""
        while True:
            address = f"/v1/orders?platform=shop-1&limit=20{cursor and '&cursor='}{cursor}"
            page = (await orders.api_client.ask("GET", address, key=orders.key)).body
            seen += [(each["modified_at"], each["order_id"]) for each in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = page["next_cursor"]
        headers = {"Authorization": f"Bearer {orders.key}"}
        async with orders.api_client.session.get(
            f"{orders.api_client.address}/v1/orders?limit=1", headers=headers
        ) as answer:
            text = await answer.text()
        strange = await orders.api_client.ask("GET", "/v1/orders", key=strangers_key)
        everybodys = await orders.ask("GET", "/v1/orders?limit=20")
        hidden = await orders.api_client.ask("POST", "/v1/orders/marks", key=strangers_key, json={"platform": "shop-1"})
        stored = await orders.read_orders()
        raw = await orders.raw(seen[0][1])

    assert f'"order":{raw}' in text
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen)) == len(stored)
    assert (strange.body["items"], hidden.status) == ([], 404)
    assert [each["order_id"] for each in everybodys.body["items"]] == [order_id for _, order_id in seen[:20]]


async def test_a_paused_platform_claims_nothing(settings: Settings) -> None:
    """Until it is resumed; pausing is the schedule's own."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=9, span_seconds=SPAN_SECONDS))
        assert (await orders.status())["is_paused"] is True
        resumed = await orders.ask("POST", "/v1/platforms/shop-1/resume", json=SIGNED)
        await orders.ask("POST", "/v1/platforms/shop-1/trigger")

        assert resumed.body["is_paused"] is False
        await eventually(orders.is_complete)
        assert (await orders.status())["is_paused"] is False


async def test_a_failed_slice_that_is_redone_says_how_that_goes(settings: Settings) -> None:
    """It stays in the failed set until it is read; meanwhile its attempts are shown, as those of an open one."""
    async with running_orders(settings) as orders:
        faults = PlatformFaults(errors=1)
        starttime = await set_up_platform(
            orders, PlatformScenario(orders=20, span_seconds=SPAN_SECONDS, faults=faults), retries=0
        )
        await orders.fetch()
        [failed, *_] = await list_failed_slices(orders)
        path = f"/v1/platforms/shop-1/slices/{failed['slice']}"
        assert (await orders.ask("GET", path)).body["reading"] is None
        await orders.configure(starttime=starttime, interval=1_500, retries=5, retryintv=60)
        await orders.ask("POST", f"{path}/redo")

        async def shows_attempt() -> bool:
            seen = (await orders.ask("GET", path)).body
            assert seen["state"] == "failed"
            return seen["reading"] is not None and seen["reading"]["next_attempt_at"] is not None

        await eventually(shows_attempt)


async def test_a_slice_is_shown_while_it_is_committed(settings: Settings) -> None:
    """Who only looks waits for no commit, and holds none up."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformScenario(orders=20, span_seconds=SPAN_SECONDS))
        await orders.fetch()
        [row, *_] = await orders.slices()
        window = TimeWindow(start=row.start_at, end=row.end_at)
        async with asyncio.timeout(PATIENCE_SECONDS), orders.services.database.session() as session:
            await ledger.find_slice(session, row.platform, window, lock=True)
            assert (await orders.ask("GET", f"/v1/platforms/shop-1/slices/{window}")).status == 200
