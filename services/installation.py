"""Preparing an installation: database, bucket and engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from temporalio.client import Client

from infra import log, temporal
from infra.database import Database
from infra.objects import ObjectStore
from infra.settings import Settings
from services.addresses import configuration
from stores import migrate

EnsureSchedules = Callable[[Client, Settings], Awaitable[None]]


async def prepare(settings: Settings, schedules: EnsureSchedules, environment: Mapping[str, str] | None = None) -> None:
    """Bring database, bucket and engine to what this version needs; may be repeated.

    Args:
        schedules: Makes the schedules, or mends them.
        environment: Variables that lead to the engine, where they are not this process' own.
    """
    await migrate.migrate(settings.database.url.get_secret_value())
    engine = await temporal.connect(environment, console=settings.api.console_base)
    await temporal.ensure_search_attributes(engine)
    await schedules(engine, await _in_force(settings))
    store = ObjectStore(settings.objects)
    try:
        await store.ensure_bucket()
    finally:
        await store.close()
    log.get(__name__).info("prepared")


async def _in_force(settings: Settings) -> Settings:
    """The settings with what operators have set through the API."""
    database = Database(settings.database)
    try:
        addresses = await configuration.load_settings(database, settings.addresses)
    finally:
        await database.close()
    return settings.model_copy(update={"addresses": addresses})
