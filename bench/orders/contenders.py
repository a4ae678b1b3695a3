"""The contenders: ours through the API and its schedule, and the peers, each in an environment of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import asyncpg
import psutil

from bench import usage
from bench.databases import temporary_database
from bench.orders.surroundings import START, Platform
from bench.peers import environments
from bench.processor import sum_cpu_seconds
from dev.local import LocalInstallation
from sims.platforms.checker import Copy, State, copy_of
from sims.platforms.dialects.plain import PLAIN

SYSTEM: Final = "orders"
PAGE_SIZE: Final = 1_000
LAG_SECONDS: Final = 180
"""How late orders may become visible, as every contender is configured."""
INTERVAL_DAYS: Final = 3
"""A history is read in long slices, by every contender that reads in slices."""
MAX_ROWS: Final = 100_000
CREDENTIALS: Final = "bench"
POLL_SECONDS: Final = 0.2
_IS_COMPLETE: Final = "SELECT complete_to >= $2 FROM order_platforms WHERE platform = $1"
_HAS_FAILED: Final = "SELECT EXISTS (SELECT FROM order_slices WHERE platform = $1 AND failed_at IS NOT NULL)"
WAIT_SECONDS: Final = 3_600.0


class FetchFailed(Exception):
    """A contender did not come to its end."""


@dataclass(frozen=True)
class Took:
    """One fetch: its time, the processor seconds of its own processes and of those that served it."""

    seconds: float
    cpu_seconds: float
    serving_seconds: float
    covered_until: datetime
    """Orders modified before that were to be fetched."""


class Fetch(Protocol):
    """One contender at work on one platform."""

    async def run(self) -> Took:
        """Fetch what there is; a second time, what has come since."""

    async def copies(self) -> list[Copy]:
        """Every row that it keeps in the end."""


class Contender(Protocol):
    """Fetches orders repeatedly."""

    name: str

    def fetching(self, platform: Platform, folder: Path) -> Any:
        """A context with a Fetch."""


class Ours:
    """A platform set up through the API; its schedule does the rest."""

    name = "ours"

    def __init__(self, running: LocalInstallation, session: aiohttp.ClientSession, project_id: str) -> None:
        self._running = running
        self._session = session
        self._project_id = project_id

    @classmethod
    async def registered(cls, running: LocalInstallation, session: aiohttp.ClientSession) -> Ours:
        """With a project of its own, and the configuration that all its platforms share."""
        session.headers["Authorization"] = f"Bearer {running.admin_key}"
        made = await _json(session.post("/v1/projects", json={"name": "bench"}))
        config = {
            "starttime": START.isoformat(),
            "interval": INTERVAL_DAYS * 86_400,
            "max_rows_per_slice": MAX_ROWS,
            "settle_lag": LAG_SECONDS,
            # Two workers with two slices each: while some are read, others are committed.
            "threads": 2,
            "credentials": CREDENTIALS,
        }
        await _json(session.put("/v1/platforms/default/config", json=config))
        return cls(running, session, made["project_id"])

    @asynccontextmanager
    async def fetching(self, platform: Platform, folder: Path) -> AsyncIterator[Fetch]:
        """The schedule is paused at the end, so that the next contender has the machine for itself."""
        try:
            yield _OurFetch(self._running, self._session, self._project_id, platform)
        finally:
            signed = {"who": "bench", "reason": "measured"}
            await _json(self._session.post(f"/v1/platforms/{platform.number}/pause", json=signed))


class _OurFetch:
    def __init__(
        self, running: LocalInstallation, session: aiohttp.ClientSession, project_id: str, platform: Platform
    ) -> None:
        self._running = running
        self._session = session
        self._project_id = project_id
        self._platform = platform
        self._begun = False

    async def run(self) -> Took:
        clock = asyncio.get_running_loop().time
        until = _whole_slices(await _platform_now(self._platform) - timedelta(seconds=LAG_SECONDS))
        async with usage.measure_usage(self._running) as use:
            began = clock()
            await (self._trigger() if self._begun else self._set_up())
            self._begun = True
            async with asyncio.timeout(WAIT_SECONDS):
                await self._reach(until)
            seconds = clock() - began
        serving = sum(use.cpu_seconds[name] for name in usage.SERVING)
        return Took(seconds, use.own_cpu_seconds, serving, until)

    async def copies(self) -> list[Copy]:
        connection = await asyncpg.connect(database_address(self._running))
        try:
            rows = await connection.fetch(
                "SELECT order_id, (extract(epoch FROM modified_at) * 1000000)::bigint, version "
                "FROM orders WHERE platform = $1",
                self._platform.number,
            )
        finally:
            await connection.close()
        return [Copy(order_id, State(modified_us, version)) for order_id, modified_us, version in rows]

    async def _set_up(self) -> None:
        account = {
            "project_id": self._project_id,
            "kind": PLAIN.kind,
            "shop": "bench",
            "base_url": self._platform.url,
            "capability": PLAIN.model_dump(mode="json"),
        }
        await _json(self._session.put(f"/v1/platforms/{self._platform.number}", json=account))
        await self._trigger()

    async def _trigger(self) -> None:
        await _json(self._session.post(f"/v1/platforms/{self._platform.number}/trigger"))

    async def _reach(self, until: datetime) -> None:
        """Polling the API so often would be a good part of what is measured."""
        connection = await asyncpg.connect(database_address(self._running))
        try:
            while not await connection.fetchval(_IS_COMPLETE, self._platform.number, until):
                if await connection.fetchval(_HAS_FAILED, self._platform.number):
                    raise FetchFailed(f"GET /v1/platforms/{self._platform.number}/slices?state=failed says why.")
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await connection.close()


class Dlt:
    """A pipeline into a PostgreSQL database of its own, on the very server that ours uses."""

    name = "dlt"

    def __init__(self, running: LocalInstallation) -> None:
        self._running = running

    @asynccontextmanager
    async def fetching(self, platform: Platform, folder: Path) -> AsyncIterator[Fetch]:
        """The database is dropped at the end."""
        async with temporary_database(database_address(self._running)) as address:
            yield _DltFetch(self._running, platform, folder, address)


@dataclass
class _DltFetch:
    running: LocalInstallation
    platform: Platform
    folder: Path
    address: str

    async def run(self) -> Took:
        until = await _platform_now(self.platform)
        arguments = (self.platform.url, self.address, str(self.folder), _stamp(START), str(LAG_SECONDS), str(PAGE_SIZE))
        return await _peer(self.running, "dlt_incremental", arguments, until)

    async def copies(self) -> list[Copy]:
        connection = await asyncpg.connect(self.address)
        try:
            rows = await connection.fetch("SELECT id::text, updated_at, version FROM peer.orders")
        finally:
            await connection.close()
        return [copy_of(order_id, datetime.fromisoformat(at).timestamp(), version) for order_id, at, version in rows]


class Airbyte:
    """The CDK, whose records lie in a file in the end."""

    name = "airbyte cdk"

    def __init__(self, running: LocalInstallation) -> None:
        self._running = running

    @asynccontextmanager
    async def fetching(self, platform: Platform, folder: Path) -> AsyncIterator[Fetch]:
        """The file goes with the folder."""
        yield _AirbyteFetch(self._running, platform, folder)


@dataclass
class _AirbyteFetch:
    running: LocalInstallation
    platform: Platform
    folder: Path

    async def run(self) -> Took:
        until = await _platform_now(self.platform)
        window = (_stamp(START), _stamp(until))
        sizes = (f"P{INTERVAL_DAYS}D", str(LAG_SECONDS), str(PAGE_SIZE))
        return await _peer(self.running, "airbyte_cdk", (self.platform.url, str(self.folder), *window, *sizes), until)

    async def copies(self) -> list[Copy]:
        """As a destination that merges by id would keep them, but what came twice unchanged stays twice."""
        found: dict[str, list[Copy]] = {}
        with (self.folder / "records.jsonl").open() as lines:
            for line in lines:
                row = json.loads(line)["record"]["data"]
                at = datetime.fromisoformat(row["updated_at"]).timestamp()
                copy = copy_of(str(row["id"]), at, row["version"])
                kept = found.setdefault(copy.order_id, [])
                if kept and copy.state > kept[0].state:
                    kept.clear()
                if not kept or copy.state == kept[0].state:
                    kept.append(copy)
        return [copy for kept in found.values() for copy in kept]


async def _peer(running: LocalInstallation, module: str, arguments: tuple[str, ...], until: datetime) -> Took:
    """Its own clock counts; what the database's server does meanwhile is counted apart."""
    server = psutil.Process(running.stack.list_pids()[usage.SERVING[1]])
    before = sum_cpu_seconds(server)
    printed = await environments.run_peer(SYSTEM, module, *arguments)
    took: Mapping[str, float] = json.loads(printed.splitlines()[-1])
    return Took(took["seconds"], took["cpu_seconds"], sum_cpu_seconds(server) - before, until)


def database_address(running: LocalInstallation) -> str:
    """Return the address of the installation's database, for drivers that know no dialects."""
    return running.settings.database.url.get_secret_value().replace("+asyncpg", "")


async def _platform_now(platform: Platform) -> datetime:
    return datetime.fromisoformat(await platform.now())


def _whole_slices(moment: datetime) -> datetime:
    length = timedelta(days=INTERVAL_DAYS)
    return START + (moment - START) // length * length


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _json(request: Any) -> dict[str, Any]:
    async with request as answer:
        body: dict[str, Any] = await answer.json()
        if answer.status >= 400:
            raise FetchFailed(f"{answer.method} {answer.url.path} answered {answer.status}: {body}")
        return body
