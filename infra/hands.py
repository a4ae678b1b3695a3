"""The clients that activities and handlers work with, opened together and closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from infra.database import Database
from infra.http import GuardedClient
from infra.objects import ObjectStore
from infra.sealing import Sealer
from infra.settings import Settings


@dataclass(frozen=True)
class Hands:
    """One process' clients."""

    database: Database
    objects: ObjectStore
    http: GuardedClient
    sealer: Sealer


@asynccontextmanager
async def open_hands(settings: Settings) -> AsyncIterator[Hands]:
    """Open all clients; what fails to open closes the others."""
    sealer = Sealer(settings.secrets)
    async with GuardedClient(settings.guard) as http:
        database, objects = Database(settings.database), ObjectStore(settings.objects)
        try:
            yield Hands(database, objects, http, sealer)
        finally:
            await database.close()
            objects.close()
