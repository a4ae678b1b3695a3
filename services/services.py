"""The clients of one process, opened and closed together, and the preparation of an installation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from temporalio.client import Client

from clients.gse import GseClient
from clients.http import GuardedClient
from clients.modules import ModulesClient
from domain.orders.names import EXPORT_ROUTE
from infra import log, outages, temporal
from infra.database import Database
from infra.filecache import FileCache
from infra.limits import HostGate, Limiter
from infra.objects import ObjectStore
from infra.secrets import Sealer
from infra.settings import Settings
from services import addresses
from stores import migrate

PING_TIMEOUT_SECONDS = 2.0

HealthCheck = Callable[[], Awaitable[object]]
CreateOrUpdateSchedules = Callable[[Client, Settings], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Services:
    """The settings and clients that handlers and activities use."""

    settings: Settings
    database: Database
    objects: ObjectStore
    http: GuardedClient
    sealer: Sealer
    gate: HostGate
    engine: Client
    gse: GseClient
    modules: ModulesClient
    files: FileCache

    @property
    def health_checks(self) -> Mapping[str, HealthCheck]:
        """A call for each component that fails if the component does not answer or cannot write."""
        return {
            "database": self.database.check_health,
            "engine": partial(temporal.check_health, self.engine),
            "bucket": self.objects.check_health,
        }

    async def find_troubles(self) -> dict[str, str | None]:
        """Check every component at once; return for each what is wrong with it, or None."""
        answers = await asyncio.gather(*map(self.find_trouble, self.health_checks))
        return dict(zip(self.health_checks, answers, strict=True))

    async def find_trouble(self, component: str) -> str | None:
        """Return what is wrong with a component; None if it serves."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                await self.health_checks[component]()
        except Exception as error:  # noqa: BLE001 (whatever the error, the component does not serve)
            return outages.describe_state(error)
        return None


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Services]:
    """Open every client, and close them in reverse order at the end of the block."""
    async with AsyncExitStack() as stack:
        database = Database(settings.database)
        stack.push_async_callback(database.close)
        objects = ObjectStore(settings.objects)
        stack.push_async_callback(objects.close)
        http = await stack.enter_async_context(GuardedClient(settings.guard, own=_build_own_route(settings)))
        yield Services(
            settings=settings,
            database=database,
            objects=objects,
            http=http,
            sealer=Sealer(settings.secrets),
            gate=await stack.enter_async_context(HostGate(Limiter(database), settings.downloads.requests_per_host)),
            engine=await temporal.connect(console=settings.api.console_base),
            gse=await stack.enter_async_context(GseClient(settings.gse)),
            modules=await stack.enter_async_context(ModulesClient(settings.addresses, http.open_socket)),
            files=FileCache(settings.gse.cache_folder, settings.gse.cache_max_bytes),
        )


def _build_own_route(settings: Settings) -> str:
    """Return the URL of the one route of our own API that sources may be, or an empty text."""
    own = settings.orders.own_address.rstrip("/")
    return f"{own}{EXPORT_ROUTE}" if own else ""


async def prepare_installation(
    settings: Settings,
    create_or_update_schedules: CreateOrUpdateSchedules,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Migrate the database, register search attributes, create schedules and the bucket. Safe to repeat.

    Args:
        create_or_update_schedules: Creates the schedules, or updates them.
        environment: Variables that lead to the engine, if they are not this process' own.
    """
    await migrate.migrate(settings.database.url.get_secret_value())
    engine = await temporal.connect(environment, console=settings.api.console_base)
    await temporal.ensure_search_attributes(engine)
    await create_or_update_schedules(engine, await _read_effective_settings(settings))
    store = ObjectStore(settings.objects)
    try:
        await store.ensure_bucket()
    finally:
        await store.close()
    log.get(__name__).info("installation_prepared")


async def _read_effective_settings(settings: Settings) -> Settings:
    """Return the settings with what operators have set through the API."""
    database = Database(settings.database)
    try:
        effective = await addresses.load_settings(database, settings.addresses)
    finally:
        await database.close()
    return settings.model_copy(update={"addresses": effective})
