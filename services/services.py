"""The clients of one process, opened and closed together, and the preparation of an installation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from temporalio.client import Client

from clients.gse import GseClient
from clients.http import GuardedClient
from clients.modules import ModulesClient
from domain.orders.names import EXPORT_ROUTE
from infra import log, outages, payloads, temporal
from infra.database import Database, build_tls_arguments
from infra.filecache import FileCache
from infra.limits import DatabaseLimiter, HostRequestLimiter
from infra.objects import ObjectStore
from infra.secrets import SecretSealer
from infra.settings import Settings
from stores import migrate, payload_keys

PING_TIMEOUT_SECONDS = 2.0

HealthCheck = Callable[[], Coroutine[Any, Any, object]]
CreateOrUpdateSchedules = Callable[[Client, Database, Settings], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Services:
    """The settings and clients that handlers and activities use."""

    settings: Settings
    database: Database
    objects: ObjectStore
    http: GuardedClient
    sealer: SecretSealer
    gate: HostRequestLimiter
    engine: Client
    gse: GseClient
    modules: ModulesClient
    files: FileCache
    _checks: dict[str, asyncio.Task[object]] = field(default_factory=dict, repr=False)
    """The last check of each component: all callers wait for one that has not ended, so that none use up threads."""
    _down_since: dict[str, datetime] = field(default_factory=dict, repr=False)
    """When the first of a row of failed checks of a component ended."""

    @property
    def health_checks(self) -> Mapping[str, HealthCheck]:
        """A call for each component that fails if the component does not answer or cannot write."""
        return {
            "database": self.database.check_health,
            "engine": partial(temporal.check_health, self.engine),
            "bucket": self.objects.check_health,
        }

    async def check_component_and_note_down_since(self, component: str) -> str | None:
        """Return what is wrong with a component; None if it serves."""
        trouble = await self._run_health_check_within_timeout(component)
        if trouble is None:
            self._down_since.pop(component, None)
        else:
            self._down_since.setdefault(component, datetime.now(UTC))
        return trouble

    def get_down_since(self, component: str) -> datetime | None:
        """Return when this process first found that a component does not serve; None if it did at the last check."""
        return self._down_since.get(component)

    async def _run_health_check_within_timeout(self, component: str) -> str | None:
        check = self._checks.get(component)
        if check is None or check.done():
            check = self._checks[component] = asyncio.create_task(self.health_checks[component]())
        # Not `timeout`: the call of a store that hangs waits for its thread when it is cancelled, for minutes.
        done, _ = await asyncio.wait([check], timeout=PING_TIMEOUT_SECONDS)
        if not done and not check.cancelling():
            check.cancel()
        if not done or check.cancelled():
            return outages.describe_failed_check(TimeoutError())
        # Whatever the error, the component does not serve.
        return None if (error := check.exception()) is None else outages.describe_failed_check(error)

    async def find_hanging_component(self) -> outages.Component | None:
        """Return the database or the engine if it does not answer."""
        for name, component in (("database", outages.Component.DATABASE), ("engine", outages.Component.ENGINE)):
            if await self.check_component_and_note_down_since(name) == outages.NO_ANSWER:
                return component
        return None


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Open every client, and close them in reverse order at the end of the block."""
    async with AsyncExitStack() as stack:
        database = Database(settings.database)
        stack.push_async_callback(database.close)
        objects = ObjectStore(settings.objects)
        stack.push_async_callback(objects.close)
        http = await stack.enter_async_context(
            GuardedClient(settings.guard, own=_build_own_export_url_or_empty(settings))
        )
        yield Services(
            settings=settings,
            database=database,
            objects=objects,
            http=http,
            sealer=SecretSealer(settings.secrets),
            gate=await stack.enter_async_context(
                HostRequestLimiter(DatabaseLimiter(database), settings.downloads.requests_per_host)
            ),
            engine=await temporal.connect(console=settings.api.console_base, codec=payloads.build_codec(settings)),
            gse=await stack.enter_async_context(GseClient(settings.gse)),
            modules=await stack.enter_async_context(ModulesClient(settings.addresses, http.open_socket_if_allowed)),
            files=FileCache(settings.gse.cache_folder, settings.gse.cache_max_bytes),
        )


async def require_revision_and_record_key_use(services: Services) -> None:
    """Check that this version works on the database, and that no key of payloads is missing.

    Raises:
        WrongRevision: It does not.
        Invalid: A key is missing.
    """
    await migrate.require_supported_revision(services.database)
    await payload_keys.require_all_used_payload_keys(services.database, services.settings)
    await payload_keys.record_payload_key_use(services.database, services.settings)


def _build_own_export_url_or_empty(settings: Settings) -> str:
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
    engine = await temporal.connect(
        environment, console=settings.api.console_base, codec=payloads.build_codec(settings)
    )
    await asyncio.gather(
        migrate.migrate(settings.database.url.get_secret_value(), build_tls_arguments(settings.database)),
        temporal.ensure_search_attributes(engine),
        _ensure_bucket(settings),
    )
    database = Database(settings.database)
    try:
        # What the schedules start is encrypted from now on: a process that starts without the key must say so.
        await payload_keys.require_all_used_payload_keys(database, settings)
        await payload_keys.record_payload_key_use(database, settings)
        await create_or_update_schedules(engine, database, settings)
    finally:
        await database.close()
    log.get(__name__).info("installation_prepared")


async def _ensure_bucket(settings: Settings) -> None:
    store = ObjectStore(settings.objects)
    try:
        await store.ensure_bucket()
    finally:
        await store.close()
