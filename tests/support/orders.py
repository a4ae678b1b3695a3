"""Helpers for tests of orders: API, worker and stand-in platforms, and a store that is held against their ledger."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from prometheus_client import Gauge
from sqlmodel import col, select
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy
from temporalio.testing import ActivityEnvironment

from activities.orders.watch import OverdueScanActivities
from dev.embedded.ports import reserve_ports
from domain import webhooks
from domain.orders import names
from domain.orders.activity_models import OrderCycleStatus, PlatformAlarm, PlatformAndCycleRunFlags
from infra.settings import Settings
from services.services import Services
from sims.platforms import checker
from sims.platforms.checker import Findings
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import PlatformScenario
from sims.platforms.server import Platforms, running_platforms
from stores.tables.orders import Order, OrderPlatform, OrderSlice, ReplacedOrderRevision
from stores.tables.shared import Delivery
from tests.support.api import ApiClient, Reply, running_api
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker import running_worker
from workflows.orders.cycle import OrderCycleWorkflow
from workflows.orders.handle import build_search_attributes

LAG_SECONDS = 60
QUEUES = (names.QUEUE, names.PLATFORM_QUEUES, webhooks.QUEUE)
NUMBER = "shop-1"
CREDENTIALS = "shop"
SIGNED = {"who": "ann", "reason": "a test wants it"}


def moment(us: int) -> datetime:
    """Microseconds since 1970 as a moment."""
    return datetime.fromtimestamp(us // MICRO, UTC)


@dataclass(frozen=True)
class Orders:
    """A running API and worker, platforms that they reach, and a project of the test's own."""

    api_client: ApiClient
    platforms: Platforms
    services: Services
    project_id: str
    key: str

    @property
    def engine(self) -> Client:
        """The engine."""
        return self.services.engine

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        """One request with the admin key."""
        return await self.api_client.as_admin(method, path, **options)

    def play(self, scenario: PlatformScenario, number: str = NUMBER) -> Platform:
        """Begin a platform, and lay down the credentials that it takes."""
        platform = self.platforms.add(number, scenario)
        folder = self.api_client.settings.orders.credentials_folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{CREDENTIALS}.json").write_text(json.dumps(platform.credentials))
        return platform

    async def set_up(self, number: str = NUMBER, *, kind: str = "plain", **fields: Any) -> dict[str, Any]:
        """Set a platform up, paused, so that only the test says when it claims."""
        body = {
            "project_id": self.project_id,
            "kind": kind,
            "shop": "shop",
            "base_url": self.platforms.url(number),
            "is_paused": True,
            **fields,
        }
        if kind == "plain":
            capability = fields.get("capability", PLAIN)
            body["capability"] = capability.model_dump(mode="json")
        reply = await self.ask("PUT", f"/v1/platforms/{number}", json=body)
        assert reply.status == 200, reply.body
        shown: dict[str, Any] = reply.body
        return shown

    async def configure(self, number: str = NUMBER, **options: Any) -> Reply:
        """Set what a platform has of its own."""
        quick = {"credentials": CREDENTIALS, "settle_lag": LAG_SECONDS, "retryintv": 0.05, "sweep_after": 0}
        reply = await self.ask("PUT", f"/v1/platforms/{number}/config", json={**quick, **options})
        assert reply.status == 200, reply.body
        return reply

    async def cycle(self, number: str = NUMBER, name: str = "") -> WorkflowHandle[OrderCycleWorkflow, OrderCycleStatus]:
        """Start a cycle, as the schedule would."""
        return await self.engine.start_workflow(
            OrderCycleWorkflow.run,
            PlatformAndCycleRunFlags(platform=number),
            id=f"{names.build_cycle_schedule_id(number)}-test{name}",
            task_queue=names.QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=build_search_attributes(self.project_id),
        )

    async def fetch(self, number: str = NUMBER) -> OrderCycleStatus:
        """One cycle to its end."""
        return await (await self.cycle(number)).result()

    async def status(self, number: str = NUMBER) -> dict[str, Any]:
        """What the API says of a platform."""
        reply = await self.ask("GET", f"/v1/platforms/{number}")
        assert reply.status == 200, reply.body
        shown: dict[str, Any] = reply.body
        return shown

    async def row(self, number: str = NUMBER) -> OrderPlatform:
        """A platform's row."""
        async with self.services.database.session() as session:
            return await session.get_one(OrderPlatform, number)

    async def slices(self, number: str = NUMBER) -> list[OrderSlice]:
        """A platform's ledger, in order of time."""
        statement = select(OrderSlice).where(OrderSlice.platform == number).order_by(col(OrderSlice.start_at))
        async with self.services.database.session() as session:
            return list(await session.exec(statement))

    async def read_orders(self, number: str = NUMBER) -> list[checker.Copy]:
        """All orders of a platform that we have."""
        async with self.services.database.session() as session:
            rows = await session.exec(select(Order).where(Order.platform == number))
            return [checker.copy_of(row.order_id, row.modified_at.timestamp(), row.version) for row in rows]

    async def raw(self, order_id: str) -> str:
        """An order as its platform wrote it."""
        async with self.services.database.session() as session:
            return (await session.exec(select(Order.raw).where(Order.order_id == order_id))).one()

    async def findings(self, number: str = NUMBER) -> Findings:
        """What is wrong up to `complete_to`, held against what the platform knows to be true."""
        row = await self.row(number)
        assert row.starts_at
        assert row.complete_to
        ledger = self.platforms.by_number[number].ledger()
        expected = checker.truth(ledger, from_us=_us(row.starts_at), until_us=_us(row.complete_to))
        stored, replaced = await self.read_orders(number), await self.read_replaced_copies(number)
        return checker.check(expected, stored, known=checker.truth(ledger), written=[*replaced, *stored])

    async def read_replaced_copies(self, number: str = NUMBER) -> list[checker.Copy]:
        """The copies that newer ones replaced, in the order in which they were written."""
        statement = (
            select(ReplacedOrderRevision)
            .where(ReplacedOrderRevision.platform == number)
            .order_by(col(ReplacedOrderRevision.revision))
        )
        async with self.services.database.session() as session:
            rows = await session.exec(statement)
            return [checker.copy_of(row.order_id, row.modified_at.timestamp(), row.version) for row in rows]

    async def wait_until_swept(self, number: str = NUMBER) -> bool:
        """Cycles until every slice that is done was swept."""

        async def all_swept() -> bool:
            await self.fetch(number)
            return all(row.swept_at for row in await self.slices(number) if row.done_at)

        return await eventually(all_swept)

    async def wait_for_slices(self, count: int, number: str = NUMBER) -> None:
        """Wait until a number of slices are claimed."""

        async def claimed() -> bool:
            return len(await self.slices(number)) >= count

        await eventually(claimed)

    async def wait_until_done(self, count: int, number: str = NUMBER) -> None:
        """Wait until a number of slices are complete."""

        async def done() -> bool:
            return sum(row.done_at is not None for row in await self.slices(number)) >= count

        await eventually(done)

    async def under_way(self, number: str = NUMBER) -> int:
        """The number of slices that are being read."""
        return sum(row.holder is not None and row.done_at is None for row in await self.slices(number))

    async def has_under_way(self, count: int) -> bool:
        """Whether a number of slices are read at a time."""
        return await self.under_way() == count

    async def most_under_way(self, *, seconds: float) -> int:
        """The most slices that were read at a time during a period."""
        until, most = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            most = max(most, await self.under_way())
        return most

    async def events(self) -> list[str]:
        """The notifications of the administrator, sent or under way, once all that were started are saved."""

        saved: list[str] = []

        async def are_all_saved() -> bool:
            started = self.engine.list_workflows(f"WorkflowType = '{webhooks.DELIVERY_WORKFLOW}'")
            ids = {execution.id async for execution in started}
            async with self.services.database.session() as session:
                saved[:] = sorted(await session.exec(select(Delivery.event_type)))
            return len(saved) >= len(ids)

        await eventually(are_all_saved)
        return saved

    async def is_complete(self, number: str = NUMBER) -> bool:
        """Whether nothing is open, failed or unclaimed."""
        status = await self.status(number)
        return not status["gaps"] and status["claimed_to"] == status["complete_to"]


def gauge(each: Gauge, number: str = NUMBER) -> float:
    """Read what this process shows of a platform."""
    value: float = each.labels(number)._value.get()
    return value


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * MICRO


def with_platforms(settings: Settings, platforms: str, **changes: Any) -> Settings:
    """Settings that let these platforms through."""
    orders = {"credentials_folder": settings.data_dir / "credentials", **changes}
    allow = [*settings.guard.allow, platforms.removeprefix("http://")]
    return settings.model_copy(
        update={
            "guard": settings.guard.model_copy(update={"allow": allow}),
            "orders": settings.orders.model_copy(update=orders),
        }
    )


@asynccontextmanager
async def running_orders(
    settings: Settings, *, queues: Sequence[str] = (), platforms: Platforms | None = None, **changes: Any
) -> AsyncIterator[Orders]:
    """API, worker, platforms and project over the test's own parts.

    Args:
        queues: What the worker serves, by default all of orders and webhooks.
        platforms: Those that run already; by default others are started.
        changes: Replace settings of orders.
    """
    with reserve_ports({}) as ports:
        port = ports.reserve("api")
        own = {"own_address": f"http://127.0.0.1:{port}", **changes}
        async with nullcontext(platforms) if platforms else running_platforms() as platforms:
            settings = with_platforms(settings, platforms.base, **own)
            async with (
                running_api(settings, port=port) as api_client,
                running_worker(api_client.settings, queues or QUEUES) as running,
            ):
                project_id, key = await api_client.make_project()
                yield Orders(api_client, platforms, running.services, project_id, key)


async def until_complete(orders: Orders, number: str = NUMBER, timeout: float = PATIENCE_SECONDS) -> None:
    """Wait until nothing is open."""

    async def complete() -> bool:
        return await orders.is_complete(number)

    await eventually(complete, timeout)


def since(platform: Platform, **distance: float) -> str:
    """A starttime some time before the platform's now."""
    return (moment(platform.market.now_us) - timedelta(**distance)).isoformat()


def count_findings(findings: Findings) -> Mapping[str, int]:
    """Findings in figures, for a failing test."""
    return {name: len(getattr(findings, name)) for name in ("lost", "stale", "duplicated", "invented", "regressed")}


async def set_up_platform(orders: Orders, scenario: PlatformScenario, **options: Any) -> str:
    """Set up a platform with an hour of orders, without fetching them; return its starttime."""
    platform = orders.play(scenario)
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
    starttime = since(platform, seconds=3_600)
    await orders.configure(starttime=starttime, interval=1_500, **options)
    return starttime


async def scan_overdue(orders: Orders) -> list[PlatformAlarm]:
    """One scan of the watch, by a call of its own; returns the alarms that it sends."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_id=uuid4().hex)
    scan = OverdueScanActivities(orders.services).report_stale_slices_and_close_lost_backfills
    return (await environment.run(scan)).alarms
