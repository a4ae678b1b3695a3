"""Operators: what an administrator does to the platform of a world between two fetches, and what must come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import WorkflowFailureError
from temporalio.common import WorkflowIDReusePolicy

from domain.orders import names
from domain.orders.activity_models import PlatformAndCycleRunFlags
from tests.support.orders import Orders
from tests.worlds.orders.expecting import BUSY, expect
from tests.worlds.orders.judging import SeenReading
from tests.worlds.orders.platform import WorldPlatform
from tests.worlds.orders.world import World
from workflows.orders.cycle import OrderCycleWorkflow
from workflows.orders.handle import build_search_attributes

BOUND_SECONDS = 480.0
"""A platform that fails every call is called once in five seconds, so that ten slices of five attempts take 250 s."""
CHANGED = {"interval": 500, "overlap": 9, "threads": 2, "max_rows_per_slice": 11}
OTHER_STARTTIME = "last 5 hours"


@dataclass
class Operator:
    """Steers one platform, and notes where the API does otherwise than it says."""

    world: World
    number: str
    orders: Orders
    platform: WorldPlatform
    starttime: str
    """The one that the platform was configured with."""
    wait_for: Callable[[asyncio.Task[Any]], Awaitable[None]]
    """Waits for a workflow while credentials are renewed, and gives up what waits for what will not come."""
    readings: list[SeenReading] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    """Workflows that may still wait."""

    async def act(self, done: list[str]) -> None:
        """Do what the operator of this world does.

        Args:
            done: The slices that are complete.
        """
        match self.world.options["operator"]:
            case "redo":
                for name in done[:2]:
                    await self.redo(name)
            case "change":
                await self.change(CHANGED)
            case "other_starttime":
                await self.change({"starttime": OTHER_STARTTIME})
            case "pause":
                await self._fetch_paused()
            case "backfill" | "backfill_broken" if done:
                await self._backfill()
            case _:
                pass

    async def change(self, options: dict[str, Any]) -> None:
        """Change the configuration; what is accepted is in force."""
        row = await self.orders.row(self.number)
        reply = await self.orders.ask("PATCH", f"/v1/platforms/{self.number}/config", json=options)
        if reply.status == 200:
            ignored = {name for name, value in options.items() if reply.body["effective"][name]["value"] != value}
            if "starttime" in options and row.starts_at and options["starttime"] != self.starttime:
                ignored.add("starttime")
            if ignored:
                self.complaints.append(f"{options} was accepted, and {sorted(ignored)} changed nothing")
        elif "starttime" not in options or reply.code != "starttime_fixed":
            self.complaints.append(f"{options} was refused: {reply.body}")

    async def redo(self, name: str) -> None:
        """Have a slice read again, and wait for its end."""
        path = f"/v1/platforms/{self.number}/slices/{name}/redo"
        if (await self.orders.ask("POST", path)).status == 202:
            await self.await_reading(name)

    async def await_reading(self, name: str) -> None:
        """Wait for the end of a reading that was asked for, and note it."""
        handle = self.orders.engine.get_workflow_handle(f"order-slice:{self.number}:{name}:redo")
        ended = asyncio.ensure_future(handle.result())
        await self.wait_for(ended)
        if not ended.done():
            ended.cancel()
            return
        with suppress(WorkflowFailureError):
            result = await ended
            fault = result["fault"] or {}
            self.readings.append(SeenReading(name, result["done"], fault.get("code", "")))

    async def _fetch_paused(self) -> None:
        """Run a cycle as the schedule would, while that is paused: it claims nothing."""
        before = await self.orders.row(self.number)
        handle = await self.orders.engine.start_workflow(
            OrderCycleWorkflow.run,
            PlatformAndCycleRunFlags(platform=self.number, heeds_pause=True),
            id=f"{names.build_cycle_schedule_id(self.number)}-test",
            task_queue=names.QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=build_search_attributes(self.orders.project_id),
        )
        self.platform.goods.market.clock.advance(2 * self.world.number("interval"))
        with suppress(WorkflowFailureError):
            await handle.result()
        after = await self.orders.row(self.number)
        if before.claimed_to != after.claimed_to:
            self.complaints.append(f"paused, it claimed from {before.claimed_to} to {after.claimed_to}")

    async def _backfill(self) -> None:
        """Have all that is complete read again, in one world of two while the platform answers nothing but errors."""
        row = await self.orders.row(self.number)
        if row.starts_at == row.complete_to:
            return
        window = {"start": row.starts_at, "end": row.complete_to}
        body = {name: moment.isoformat() for name, moment in window.items() if moment is not None}
        reply = await self.orders.ask("POST", f"/v1/platforms/{self.number}/backfill", json=body)
        if reply.status != 202:
            if reply.code != "window_invalid":
                self.complaints.append(f"a backfill of {body} was refused: {reply.body}")
            return
        self.platform.is_out = self.world.is_so("operator", "backfill_broken")
        self.started.append(reply.body["workflow_id"])
        result = asyncio.ensure_future(self.orders.engine.get_workflow_handle(self.started[-1]).result())
        try:
            await self.wait_for(result)
        finally:
            self.platform.is_out = False
        if not result.done():
            result.cancel()
            return
        path = f"/v1/platforms/{self.number}/backfills/{reply.body['backfill_id']}"
        self._check_backfill((await self.orders.ask("GET", path)).body, await self._count_unread())

    async def _count_unread(self) -> int:
        path = f"/v1/platforms/{self.number}/slices"
        reply = await self.orders.ask("GET", path, params={"reread": "failed", "limit": 100})
        return len(reply.body["items"])

    def _check_backfill(self, record: dict[str, Any], unread: int) -> None:
        """Hold the record of a backfill that has ended against what the platform did meanwhile."""
        code = (record["fault"] or {}).get("code", "")
        allowed = {BUSY} if self.world.is_so("operator", "backfill_broken") else expect(self.world).causes
        told = f"{record['state']} {code}: {record['read']} read, {record['failed']} failed of {record['slices']}"
        if self.world.is_so("operator", "backfill_broken") and record["state"] != "failed":
            self.complaints.append(f"a backfill of a platform that answered nothing is {told}")
        if (record["state"] == "failed") != bool(code) or record["failed"] != unread:
            self.complaints.append(f"a backfill is {told}, and the ledger has {unread} slices that were not read again")
        if code and code not in allowed | expect(self.world).causes:
            self.complaints.append(f"a backfill failed for no reason: {told}: {record['fault']['message']}")
