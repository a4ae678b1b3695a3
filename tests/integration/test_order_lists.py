"""Orders as the console draws them: a time line of any length, lists of slices and platforms, values side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformScenario
from stores.tables.orders import OrderPlatform, OrderSlice
from tests.support.orders import NUMBER, Orders, running_orders, since

pytestmark = pytest.mark.stack

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SLICE = timedelta(minutes=10)
NARROW = PLAIN.model_copy(update={"query": PLAIN.query.model_copy(update={"window_max_seconds": 1_800.0})})


async def ledger(orders: Orders, count: int, **odd: dict[str, Any]) -> None:
    """A ledger with this number of complete slices, but for the odd ones, by number as `n12`."""
    rows = [
        OrderSlice(
            platform=NUMBER,
            start_at=BEGIN + number * SLICE,
            end_at=BEGIN + (number + 1) * SLICE,
            track="live",
            **{"done_at": BEGIN, "orders": 5, **odd.get(f"n{number}", {})},
        )
        for number in range(count)
    ]
    end = BEGIN + count * SLICE
    marks = {"starts_at": BEGIN, "history_to": BEGIN, "live_from": BEGIN, "claimed_to": end, "complete_to": BEGIN}
    async with orders.services.database.session() as session:
        session.add_all(rows)
        await session.execute(update(OrderPlatform).where(col(OrderPlatform.platform) == NUMBER).values(**marks))


async def read_timeline(orders: Orders, **query: Any) -> dict[str, Any]:
    """The time line."""
    reply = await orders.ask("GET", f"/v1/platforms/{NUMBER}/timeline", params=query)
    assert reply.status == 200, reply.body
    line: dict[str, Any] = reply.body
    return line


async def test_a_time_line_tells_all_slices_in_so_many_parts(settings: Settings) -> None:
    """Each part what became of its slices; a slice that is longer than a part lies in several, and counts in one."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up()
        empty = await read_timeline(orders)
        await ledger(
            orders,
            60,
            n7={"done_at": None, "failed_at": BEGIN, "orders": None},
            n8={"done_at": None, "orders": None},
            n9={"done_at": None, "skipped_at": BEGIN, "orders": None},
            n20={"swept_at": BEGIN, "missed": 2},
        )
        span = {"start": BEGIN.isoformat(), "end": (BEGIN + 60 * SLICE).isoformat()}
        coarse, fine = (
            await read_timeline(orders, **span, bucket_count=6),
            await read_timeline(orders, **span, bucket_count=120),
        )
        whole = await read_timeline(orders, bucket_count=10)
        zoomed = await read_timeline(orders, start=(BEGIN + 7 * SLICE).isoformat(), end=(BEGIN + 8 * SLICE).isoformat())
        refused = await orders.ask("GET", f"/v1/platforms/{NUMBER}/timeline", params={**span, "end": span["start"]})

    assert (empty["buckets"], empty["starts_at"]) == ([], None)
    assert [part["slices"] for part in coarse["buckets"]] == [10] * 6
    assert {name: coarse["buckets"][0][name] for name in ("done", "open", "failed", "skipped", "orders")} == {
        "done": 7,
        "open": 1,
        "failed": 1,
        "skipped": 1,
        "orders": 35,
    }
    assert [(part["swept"], part["missed"]) for part in coarse["buckets"]][:3] == [(0, 0), (0, 0), (1, 2)]
    assert [part["number"] for part in fine["buckets"] if part["failed"]] == [14, 15]
    assert sum(part["orders"] for part in fine["buckets"]) == 57 * 5
    assert whole["start"] == coarse["start"]
    assert sum(part["slices"] for part in whole["buckets"]) >= 60
    assert {part["failed"] for part in zoomed["buckets"]} == {1}
    assert len(zoomed["buckets"]) == 240
    assert refused.status == 422


async def test_slices_are_found_by_their_time(settings: Settings) -> None:
    """All that touch it; with when they were swept."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up()
        await ledger(orders, 30, n12={"swept_at": BEGIN, "missed": 0})
        times = {"start": (BEGIN + 11 * SLICE).isoformat(), "end": (BEGIN + 13 * SLICE).isoformat()}
        reply = await orders.ask("GET", f"/v1/platforms/{NUMBER}/slices", params=times)

    assert [each["window"]["start"][11:16] for each in reply.body["items"]] == ["02:00", "01:50"]
    assert [each["swept_at"] is not None for each in reply.body["items"]] == [True, False]


async def test_lists_of_platforms_count_what_needs_care(settings: Settings) -> None:
    """How many slices failed and are open; of one project alone, if it is named."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up()
        await ledger(orders, 5, n1={"done_at": None}, n2={"done_at": None, "failed_at": BEGIN})
        other, _ = await orders.api_client.make_project("other")
        [listed] = (await orders.ask("GET", "/v1/platforms", params={"project_id": orders.project_id})).body["items"]
        others = (await orders.ask("GET", "/v1/platforms", params={"project_id": other})).body["items"]
        paused = await orders.ask("POST", f"/v1/platforms/{NUMBER}/pause", json={"who": "ann", "reason": "stocktaking"})
        shown = await orders.status()

    assert (listed["platform"], listed["slices_failed"], listed["slices_open"]) == (NUMBER, 1, 1)
    assert (shown["slices_failed"], shown["slices_open"], shown["is_paused"], shown["note"]) == (
        1,
        1,
        True,
        "ann: stocktaking",
    )
    assert (others, shown["next_runs"], paused.body["next_runs"]) == ([], [], [])


async def test_a_value_is_shown_beside_what_it_overrides(settings: Settings) -> None:
    """And a wrong one is refused with its field."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=0))
        await orders.set_up(capability=NARROW)
        await orders.ask("PUT", "/v1/platforms/default/config", json={"threads": 7})
        path = f"/v1/platforms/{NUMBER}/config"
        shown = (await orders.ask("PUT", path, json={"threads": 2, "starttime": since(platform, hours=1)})).body
        refused = [
            await orders.ask("PUT", path, json=options)
            for options in ({"interval": 3_600}, {"overlap": 900}, {"threads": 0})
        ]

    assert shown["inherited"]["threads"] == {"value": 7, "origin": "default"}
    assert shown["effective"]["threads"] == {"value": 2, "origin": "platform"}
    assert shown["inherited"]["interval"] == shown["effective"]["interval"]
    assert [reply.body["errors"][0]["path"] for reply in refused] == ["interval", "overlap", "threads"]
    assert "at most 1800 s" in refused[0].body["errors"][0]["message"]


async def test_compared_days_are_listed(settings: Settings) -> None:
    """The newest first, page by page; of this platform alone."""
    async with running_orders(settings) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up()
        for name in ("shop-1/2026-01-02", "shop-1/2026-01-10", "shop-10/2026-01-03"):
            await orders.services.objects.put(f"orders-reports/{name}.xlsx", b"PK")
            await orders.services.objects.put(f"orders-reports/{name}.xlsx.json", b"{}")
        found = await orders.ask("GET", f"/v1/platforms/{NUMBER}/reports")
        first = await orders.ask("GET", f"/v1/platforms/{NUMBER}/reports", params={"limit": "1"})
        further = {"limit": "1", "cursor": first.body["next_cursor"]}
        last = await orders.ask("GET", f"/v1/platforms/{NUMBER}/reports", params=further)
        nobody = await orders.ask("GET", "/v1/platforms/nobody/reports")

    pages = [[each["day"] for each in reply.body["items"]] for reply in (found, first, last)]
    assert pages == [["2026-01-10", "2026-01-02"], ["2026-01-10"], ["2026-01-02"]]
    assert (found.body["next_cursor"], last.body["next_cursor"]) == (None, None)
    assert nobody.status == 404
