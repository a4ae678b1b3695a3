"""The clients of one process, opened and closed together: what handlers and activities work with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from temporalio.client import Client

from clients.gse import GseClient
from clients.http import GuardedClient
from clients.modules import Modules
from infra import temporal
from infra.database import Database
from infra.filecache import FileCache
from infra.limits import HostGate, Limiter
from infra.objects import ObjectStore
from infra.secrets import Sealer
from infra.settings import Settings

PING_TIMEOUT_SECONDS = 2.0

Ping = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a handler or an activity may need."""

    settings: Settings
    database: Database
    objects: ObjectStore
    http: GuardedClient
    sealer: Sealer
    gate: HostGate
    engine: Client
    gse: GseClient
    modules: Modules
    files: FileCache

    @property
    def pings(self) -> Mapping[str, Ping]:
        """How each part is asked whether it can serve."""
        return {
            "database": self.database.ping,
            "engine": self.engine.service_client.check_health,
            "bucket": self.objects.ping,
        }

    async def failing(self) -> dict[str, bool]:
        """For each part, whether it fails to answer in time. All are asked at once."""
        answers = await asyncio.gather(*map(self.fails, self.pings))
        return dict(zip(self.pings, answers, strict=True))

    async def fails(self, part: str) -> bool:
        """Whether a part fails to answer in time."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                await self.pings[part]()
        except Exception:  # noqa: BLE001 (whatever it is, the part does not serve)
            return True
        return False


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Services]:
    """Open every client, and close them in reverse."""
    async with AsyncExitStack() as stack:
        database = Database(settings.database)
        stack.push_async_callback(database.close)
        objects = ObjectStore(settings.objects)
        stack.push_async_callback(objects.close)
        http = await stack.enter_async_context(GuardedClient(settings.guard, own=settings.orders.own_address))
        yield Services(
            settings=settings,
            database=database,
            objects=objects,
            http=http,
            sealer=Sealer(settings.secrets),
            gate=await stack.enter_async_context(HostGate(Limiter(database), settings.downloads.requests_per_host)),
            engine=await temporal.connect(console=settings.api.console_base),
            gse=await stack.enter_async_context(GseClient(settings.gse)),
            modules=await stack.enter_async_context(Modules(settings.addresses, http.open_socket)),
            files=FileCache(settings.gse.cache_folder, settings.gse.cache_max_bytes),
        )
