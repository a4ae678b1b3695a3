"""Platforms whose requests have other options, and what comes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlmodel import select
from temporalio.client import WorkflowFailureError

from domain.orders import names, windows
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformScenario
from stores.tables.orders import Order
from tests.support.orders import Orders
from tests.support.pace import measure_pace


@dataclass
class Shop:
    """Platforms of a test, each with a number of its own."""

    orders: Orders
    used: int = 0

    async def begin(self, scenario: PlatformScenario, setup: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Set a platform up, paused; return its number."""
        self.used += 1
        number = f"shop-{self.used}"
        self.orders.play(scenario, number)
        if scenario.api_version is not None:
            setup = {**setup, "capability": _declare_versioned_record()}
        kind = setup.get("kind", "plain")
        body = {
            "project_id": self.orders.project_id,
            "kind": kind,
            "shop": "shop",
            "base_url": self.orders.platforms.url(number),
            "capability": PLAIN.model_dump(mode="json"),
            "is_paused": True,
            **setup,
        }
        for path, sent in (("", body), ("/config", config)):
            reply = await self.orders.ask("PUT", f"/v1/platforms/{number}{path}", json=sent)
            assert reply.status == 200, reply.body
        return number

    async def fetch(self, number: str, *, bound_seconds: float = 60) -> bool:
        """Run a cycle; False where it waits for something and is ended."""
        handle = await self.orders.cycle(number)
        cycle = asyncio.ensure_future(handle.result())
        await asyncio.wait({cycle}, timeout=bound_seconds * measure_pace())
        if cycle.done():
            with suppress(WorkflowFailureError):
                cycle.result()
            return True
        cycle.cancel()
        await handle.terminate()
        for row in await self.orders.slices(number):
            start, end = windows.format_time_in_id(row.start_at), windows.format_time_in_id(row.end_at)
            name = f"order-slice:{number}:{start}:{end}"
            with suppress(Exception):
                await self.orders.engine.get_workflow_handle(name).terminate()
        return False

    async def look(self, number: str) -> dict[str, Any]:
        """Say what came of a platform, without what differs each time."""
        row, rows = await self.orders.row(number), await self.orders.slices(number)
        async with self.orders.services.database.session() as session:
            found = await session.exec(select(Order.shop, Order.order_id).where(Order.platform == number))
            stored = sorted(map(tuple, found))
        return {
            "project": row.project_id,
            "marks": [row.starts_at, row.claimed_to, row.complete_to],
            "troubles": [row.clock_failed_since is not None, row.credentials_failed_since is not None],
            "stored": stored,
            "slices": [
                (
                    *(each.start_at, each.end_at, each.done_at is not None, each.split_at is not None, each.attempts),
                    *(each.orders, each.pages, each.swept_at is not None, (each.fault or {}).get("code")),
                )
                for each in rows
            ],
        }

    async def list_pauses(self, number: str) -> list[float]:
        """Return how long the slices of a platform paused between their attempts."""
        found = []
        for row in await self.orders.slices(number):
            window = windows.TimeWindow(start=row.start_at, end=row.end_at)
            handle = self.orders.engine.get_workflow_handle(names.build_slice_workflow_id(number, window))
            async for event in handle.fetch_history_events():
                if event.HasField("timer_started_event_attributes"):
                    timeout = event.timer_started_event_attributes.start_to_fire_timeout
                    found.append(timeout.ToTimedelta().total_seconds())
        return found


def _declare_versioned_record() -> dict[str, Any]:
    """Declare the plain record with the version in its paths."""
    record = PLAIN.model_dump(mode="json")
    for part in ("query", "clock", "total"):
        if record[part] and record[part].get("path"):
            record[part]["path"] = "/{version}" + record[part]["path"]
    return record | {"version": {"value": "v0"}}
