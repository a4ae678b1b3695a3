"""Playing: a world's platform is set up through the API and fetched in cycles, and what is stored is judged."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlmodel import col, select
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from domain.orders import names as orders_names
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.clock import MICRO
from sims.platforms.server import Platforms
from stores.tables.orders import Order, ReplacedOrderRevision
from tests.support.orders import Orders, running_orders
from tests.support.pace import measure_pace
from tests.worlds import dice
from tests.worlds.orders.judging import Seen, SeenSlice, StoredOrder, cause_of_status, judge_world
from tests.worlds.orders.operating import BOUND_SECONDS, Operator
from tests.worlds.orders.platform import WorldPlatform
from tests.worlds.orders.record import KIND, VERSION, draw_record
from tests.worlds.orders.rows import as_us, moment
from tests.worlds.orders.serving import WorldPlatforms, running_world_platforms
from tests.worlds.orders.world import ROWS_MAX, SPAN_SECONDS, World
from tests.worlds.verdict import Ending, Verdict

LOOK_SECONDS = 0.25
QUIET_SECONDS = 1.5
"""A client that should come back in an hour, and has sent no request for this time, waits."""
SWEEP_SECONDS = 1
NOT_YET_SECONDS = 86_400
"""No sweep comes before it is let: the platform's clock stops, and what is late would be later than that."""
SWEEPS_MAX = 4
RATE = {"requests_per_second": 300, "burst": 60, "daily_quota": 100_000}
"""Less than the kind allows, and enough for a world."""
PAGE = 100


@dataclass
class Play:
    """One playing of a world."""

    world: World
    number: str
    orders: Orders
    platform: WorldPlatform
    marks: list[Mapping[str, datetime | None]] = field(default_factory=list)
    late: str = ""
    waits: bool = False
    laid: dict[str, str] = field(default_factory=dict)
    """The credentials that were laid down last."""
    operator: Operator = field(init=False)

    def __post_init__(self) -> None:
        """Add its operator."""
        starttime = self._config()["starttime"]
        self.operator = Operator(self.world, self.number, self.orders, self.platform, starttime, self._wait_for)

    async def run(self) -> Verdict:
        """Set up, fetch, let orders change, fetch again, and judge; where it is to be mended, mend and judge again."""
        self._lay_credentials()
        if (refused := await self._set_up()) is not None:
            return Verdict(Ending.NEEDLESS, refused)
        await self._fetch(is_first=True)
        await self._steer()
        await self._go_on()
        await self._fetch()
        await self._settle()
        found = judge_world(self.world, await self._see(is_mended=False), self.platform.goods.truth())
        if found.ending.is_defect or self.world.is_so("afterwards", "left") or self.late:
            return found
        await self._mend()
        again = judge_world(self.world, await self._see(is_mended=True), self.platform.goods.truth())
        return Verdict(again.ending, f"mended: {again.why}", again.fired) if again.ending.is_defect else found

    # what an administrator does

    def _lay_credentials(self) -> None:
        """Put the good credentials where they are read, in whole."""
        if self.laid == self.platform.account.credentials:
            return
        self.laid = self.platform.account.credentials
        folder = self.orders.api_client.settings.orders.credentials_folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.number}.json"
        path.with_suffix(".new").write_text(json.dumps(self.platform.account.credentials))
        path.with_suffix(".new").replace(path)

    async def _set_up(self) -> str | None:
        body = {
            "project_id": self.orders.project_id,
            "kind": KIND,
            "shop": "shop",
            "base_url": self.platform.base,
            "capability": draw_record(self.world).model_dump(mode="json"),
            "is_paused": True,
        }
        for path, sent in (("", body), ("/config", self._config())):
            reply = await self.orders.ask("PUT", f"/v1/platforms/{self.number}{path}", json=sent)
            if reply.status != 200:
                return f"PUT {path}: {reply.body}"
        return None

    def _config(self) -> dict[str, Any]:
        world = self.world
        rows = world.number("rows_of_a_slice")
        since = moment(self.platform.goods.now_us // MICRO * MICRO) - timedelta(seconds=SPAN_SECONDS)
        return {
            "credentials": self.number,
            "starttime": since.isoformat() if world.is_so("starttime", "moment") else "last 1 hours",
            "interval": world.number("interval"),
            "overlap": world.number("overlap"),
            "threads": world.number("threads"),
            "max_rows_per_slice": min(rows, ROWS_MAX) if world.is_so("rows_max", "declared") else rows,
            "sweep_after": NOT_YET_SECONDS if world.is_so("sweep", "yes") else 0,
            "retries": world.number("retries"),
            "retryintv": 0.05,
            "timeout": world.number("timeout"),
            "settle_lag": world.number("settle_lag"),
            **(RATE if world.is_so("rate", "configured") else {}),
            **({} if world.is_so("api", "one") else {"api_version": VERSION}),
        }

    async def _steer(self) -> None:
        """Do what the operator of this world does."""
        if self.waits or self.late or self.platform.account.is_dead:
            return
        if self.world.has("list_older"):
            self.platform.goods.stored = await self._list_revisions()
        await self.operator.act([each.name for each in await self._slices("done")])

    async def _list_revisions(self) -> dict[int, int]:
        """Return which revision of each order is stored."""
        stored, _ = await self._read_store()
        return {self.platform.goods.number_of(each.order_id): json.loads(each.raw)["revision"] for each in stored}

    async def _redo_open(self) -> None:
        """Ask for another reading of slices that are being read."""
        asked = set[str]()
        while True:
            for each in await self._slices("open"):
                if each.name not in asked:
                    asked.add(each.name)
                    await self.operator.redo(each.name)
            await asyncio.sleep(LOOK_SECONDS)

    # what happens meanwhile

    async def _go_on(self) -> None:
        """Let orders come and change shortly before a slice ends, and time pass until that slice has just settled."""
        goods, world = self.platform.goods, self.world
        claimed_to = self.marks[-1]["claimed_to"] if self.marks else None
        lag_us = world.number("settle_lag") * MICRO
        if claimed_to is None:
            goods.market.clock.advance(SPAN_SECONDS)
            return
        end_us, interval_us = as_us(claimed_to), world.number("interval") * MICRO
        while end_us <= goods.now_us + 10 * MICRO:
            end_us += interval_us
        goods.market.clock.advance((end_us - goods.now_us) / MICRO)
        for event in range(world.events + (2 if world.has("late", "too_late") else 0)):
            self._let_happen(event, end_us, lag_us)
        goods.market.clock.advance(lag_us / MICRO + 2)
        if world.has("clock_back"):
            self.platform.set_back()

    def _let_happen(self, event: int, end_us: int, lag_us: int) -> None:
        market, world = self.platform.goods.market, self.world
        chance = dice.stream(world.seed, "event", event)
        at_us = (end_us - chance.randrange(1, 90) * MICRO) // market.grain_us * market.grain_us
        late_us = 0
        if flaw := world.flaw("late", "too_late"):
            settled_us = end_us + lag_us - at_us
            late_us = settled_us - MICRO if flaw.name == "late" else settled_us + (60 + flaw.dial % 300) * MICRO
        if market.created and chance.random() < 0.4:
            number = chance.randrange(len(market.created))
            market.modify(number, at_us, late_us)
        else:
            number = market.create(at_us, late_us)
        if late_us:
            by_created = world.is_so("field", "created")
            found_us = market.created[number] if by_created else market.truth.modified[number]
            self.platform.late[number] = market.truth.version[number], found_us

    async def _settle(self) -> None:
        """Let all come to rest and settle; fetch, steer what failed, and sweep."""
        market, world = self.platform.goods.market, self.world
        market.clock.advance(world.number("settle_lag") + world.number("interval") + 10)
        market.freeze()
        self.platform.is_date_fresh = True
        await self._fetch_until_all_is_read()
        if world.is_so("operator", "split", "skip"):
            body = {"all": True} | ({"reason": "given up"} if world.is_so("operator", "skip") else {})
            await self.orders.ask("POST", f"/v1/platforms/{self.number}/slices:{world.options['operator']}", json=body)
            await self._fetch_until_all_is_read()
        await self._sweep()

    async def _sweep(self) -> None:
        if self.world.is_so("sweep", "no") or self.waits or self.late:
            return
        await self.operator.change({"sweep_after": SWEEP_SECONDS})
        for _ in range(SWEEPS_MAX):
            await asyncio.sleep(SWEEP_SECONDS)
            await self._fetch()
            if not await self._count_unswept():
                return

    async def _count_unswept(self) -> int:
        return sum(row.done_at is not None and row.swept_at is None for row in await self.orders.slices(self.number))

    async def _mend(self) -> None:
        """End what lasts, and read again what has failed."""
        self.platform.heal()
        self._lay_credentials()
        if self.waits:
            await self._end_workflows()
            self.waits = False
        self.platform.goods.market.clock.advance(self.world.number("interval"))
        reply = await self.orders.ask("POST", f"/v1/platforms/{self.number}/slices:redo", json={"all": True})
        for name in reply.body["done"]:
            await self.operator.await_reading(name)
        await self._fetch_until_all_is_read()
        await self._sweep()

    # fetching

    async def _fetch(self, *, is_first: bool = False) -> None:
        """Run one cycle to its end, or until it is seen that it waits for what will not come."""
        if self.late or self.waits:
            return
        handle = await self.orders.cycle(self.number)
        cycle = asyncio.create_task(handle.result())
        beside = (
            asyncio.create_task(self._redo_open()) if is_first and self.world.is_so("operator", "redo_open") else None
        )
        try:
            await self._wait_for(cycle)
        finally:
            for task in filter(None, (cycle, beside)):
                task.cancel()
                with suppress(asyncio.CancelledError, WorkflowFailureError, RPCError):
                    await task
        await self._look()

    async def _fetch_until_all_is_read(self) -> None:
        """Run cycles as the schedule does: one in which slice after slice fails leaves the rest to the next."""
        before = None
        while not (self.late or self.waits):
            await self._fetch()
            still_open = {each.name for each in await self._slices("open")}
            if not still_open or still_open == before:
                return
            before = still_open

    async def _wait_for(self, cycle: asyncio.Task[Any]) -> None:
        until = time.monotonic() + BOUND_SECONDS * measure_pace()
        while not (await asyncio.wait({cycle}, timeout=LOOK_SECONDS))[0]:
            is_dead = self.platform.account.is_dead
            if not is_dead:
                self._lay_credentials()
            quiet = time.monotonic() - self.platform.last_asked_at > QUIET_SECONDS
            if self.platform.told_to_wait and quiet:
                self.waits = True
                return
            if is_dead and (await self._status())["credentials_failed_since"]:
                self.waits = True
                return
            if time.monotonic() > until:
                self.late = f"not in {BOUND_SECONDS} s: {await self._status()}"
                return

    async def _look(self) -> None:
        """Note how far the platform is."""
        row = await self.orders.row(self.number)
        self.marks.append({name: getattr(row, name) for name in ("starts_at", "claimed_to", "complete_to")})

    # seeing

    async def _status(self) -> dict[str, Any]:
        return await self.orders.status(self.number)

    async def _slices(self, state: str | None = None) -> list[SeenSlice]:
        found, cursor = list[SeenSlice](), None
        while True:
            query = {"limit": PAGE, "state": state, "cursor": cursor}
            params = {name: value for name, value in query.items() if value is not None}
            reply = await self.orders.ask("GET", f"/v1/platforms/{self.number}/slices", params=params)
            found += [_seen_slice(each) for each in reply.body["items"]]
            if not (cursor := reply.body["next_cursor"]):
                return found

    async def _see(self, *, is_mended: bool) -> Seen:
        status = await self._status()
        stored, replaced = await self._read_store()
        lag = timedelta(seconds=self.world.number("settle_lag"))
        return Seen(
            stored=stored,
            replaced=replaced,
            slices=await self._slices(),
            readings=self.operator.readings,
            marks=self.marks,
            settled_to=moment(self.platform.goods.now_us) - lag,
            troubles=cause_of_status(
                status,
                waits=self.waits and self.platform.told_to_wait > 0,
                is_backfilled=bool(self.operator.started),
            ),
            missed=status["orders_missed"],
            complaints=self.operator.complaints,
            late=self.late,
            fired=frozenset(self.platform.fired),
            is_mended=is_mended,
        )

    async def _read_store(self) -> tuple[list[StoredOrder], list[StoredOrder]]:
        async with self.orders.services.database.session() as session:
            now = await session.exec(select(Order).where(Order.platform == self.number))
            stored = [StoredOrder(row.order_id, row.modified_at, row.version, row.raw) for row in now]
            before = (
                select(ReplacedOrderRevision)
                .where(ReplacedOrderRevision.platform == self.number)
                .order_by(col(ReplacedOrderRevision.revision))
            )
            rows = await session.exec(before)
            return stored, [StoredOrder(row.order_id, row.modified_at, row.version, row.raw) for row in rows]

    async def close(self) -> None:
        """Take away what would go on for ever."""
        await self._end_workflows()
        schedule = self.orders.engine.get_schedule_handle(orders_names.build_cycle_schedule_id(self.number))
        with suppress(RPCError):
            await schedule.delete()
        async with self.orders.services.database.session() as session:
            for table in ("order_copies", "orders", "order_settings", "order_platforms"):
                await session.execute(text(f"DELETE FROM {table} WHERE platform = :n"), {"n": self.number})  # noqa: S608

    async def _end_workflows(self) -> None:
        if not (self.waits or self.late):
            return
        rows = await self.orders.slices(self.number)
        names = [
            orders_names.build_slice_workflow_id(self.number, TimeWindow(start=row.start_at, end=row.end_at))
            for row in rows
        ]
        names += [f"{name}:{suffix}" for name in names for suffix in ("redo", "sweep")]
        for name in [f"{orders_names.build_cycle_schedule_id(self.number)}-test", *self.operator.started, *names]:
            with suppress(RPCError):
                await self.orders.engine.get_workflow_handle(name).terminate()


def _seen_slice(told: Mapping[str, Any]) -> SeenSlice:
    fault = told["fault"] or {}
    start, end = (datetime.fromisoformat(told["window"][name]) for name in ("start", "end"))
    code, message, is_swept = fault.get("code", ""), fault.get("message", ""), told["swept_at"] is not None
    return SeenSlice(told["slice"], start, end, told["state"], code, message, is_swept)


@dataclass
class Stage:
    """Where worlds are played: API, worker, and all their platforms."""

    orders: Orders
    platforms: WorldPlatforms
    played: int = 0

    async def play(self, world: World) -> Verdict:
        """Play a world, and say what to think of what came out."""
        self.played += 1
        number = f"w{self.played}"
        play = Play(world, number, self.orders, self.platforms.add(number, world))
        try:
            return await play.run()
        finally:
            await play.close()
            del self.platforms.by_number[number]


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[Stage]:
    """API, worker and platforms."""
    async with running_world_platforms() as platforms:
        base = Platforms(base=platforms.base)
        async with running_orders(settings, platforms=base) as orders:
            yield Stage(orders, platforms)
