"""What workers ask the database for as long as no platform of orders is set up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from activities.orders import platform_workers
from domain.orders import names
from stores.orders import health, platforms

if TYPE_CHECKING:
    from infra.database import Database
    from services.services import Services


class ExistenceOnlyDatabase:
    """A database that says whether a platform exists; it fails to load any."""

    def __init__(self, stop: asyncio.Event, *, has_platforms: bool = False) -> None:
        self._stop = stop
        self._has_platforms = has_platforms

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[ExistenceOnlyDatabase]:
        yield self

    async def fetchval(self, _statement: str) -> bool:
        self._stop.set()
        return self._has_platforms

    def session(self) -> None:
        raise ConnectionRefusedError("platforms are loaded")


async def test_threads_are_loaded_only_where_there_is_a_platform() -> None:
    """An installation without orders pays for one lookup, not for a transaction with all options."""
    without = ExistenceOnlyDatabase(asyncio.Event())
    assert await platforms.load_threads_by_platform(cast("Database", without)) == {}
    with pytest.raises(ConnectionRefusedError):
        await platforms.load_threads_by_platform(
            cast("Database", ExistenceOnlyDatabase(asyncio.Event(), has_platforms=True))
        )


@pytest.mark.parametrize("has_platforms", [False, True])
async def test_health_of_platforms_is_loaded_only_where_there_is_one(
    has_platforms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gauges are updated every two seconds by every worker."""
    stop = asyncio.Event()
    loads = 0

    async def load_platforms_health(_database: Database) -> health.PlatformsHealth:
        nonlocal loads
        loads += 1
        raise ConnectionRefusedError

    monkeypatch.setattr(health, "load_platforms_health", load_platforms_health)
    services = SimpleNamespace(database=ExistenceOnlyDatabase(stop, has_platforms=has_platforms))
    await platform_workers.update_gauges_until_stopped(cast("Services", services), [names.QUEUE], stop)
    assert loads == has_platforms
