"""The system of addresses in this process: API, worker and the four modules; messages that change addresses."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from domain.addresses import names
from domain.addresses.messages import PublishedMessage, Topic
from domain.addresses.operations import Module
from infra.settings import Settings
from services.services import Services
from sims.oss.server import Oss, running_oss
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.support.api import ApiClient, Reply, running_api
from tests.support.modules import module_settings
from tests.support.waiting import eventually
from tests.support.worker import running_worker

SIGNED = {"who": "ann", "reason": "a test wants it"}
MESSAGE_MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Addresses:
    """A running API and worker, and the modules that they call."""

    api_client: ApiClient
    modules: Oss
    services: Services

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        """Send a request below `/v1/addresses` with the admin key."""
        return await self.api_client.as_admin(method, f"/v1/addresses/{path}", **options)

    async def publish(self, topic: Topic, **said: Any) -> int:
        """Put a message into the log, as if Pub/Sub had delivered it; return its id."""
        number = secrets.token_hex(8)
        message = PublishedMessage(message_id=number, data=json.dumps(said).encode())
        await MessageLogAndQuarantineWriter(
            self.services.database, MESSAGE_MAX_BYTES
        ).store_messages_or_quarantine_them([DeliveredMessage(topic, message)])
        for refused in await self._fetch("SELECT reason FROM addr_sync_quarantine WHERE msg_no = $1", number):
            raise AssertionError(f"{topic} {said} is put into quarantine: {refused['reason']}")
        [row] = await self._fetch("SELECT id FROM im_infi_addr_sync_log WHERE msg_no = $1", number)
        return int(row["id"])

    async def resume(self) -> None:
        """Let cycles run until the test ends: they take what is in the log."""
        reply = await self.ask("POST", "cycle/resume", json=SIGNED)
        assert reply.status == 200, reply.body

    async def row(self, id_: int) -> asyncpg.Record:
        """Return a message as the log or its history has it."""
        for table in ("im_infi_addr_sync_log", "im_infi_addr_sync_log_his"):
            if rows := await self._fetch(f"SELECT * FROM {table} WHERE id = $1", id_):  # noqa: S608 - constant names
                return rows[0]
        raise AssertionError(f"message {id_} is neither in the log nor in its history")

    async def wait_until_applied(self, id_: int) -> asyncpg.Record:
        """Wait until all four modules have a message, and return its row."""

        async def find_done() -> asyncpg.Record | None:
            row = await self.row(id_)
            return row if row["proc_flag"] == "Y" else None

        row = await eventually(find_done)
        assert row is not None
        return row

    def states(self, module: Module) -> dict[int, tuple[int, Any]]:
        """Return the address id and the record of each UPRN of a module."""
        return {uprn: (each.address_id, each.record) for uprn, each in self.modules.modules[module].live().items()}

    async def _fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.services.database.connection() as connection:
            return list(await connection.fetch(statement, *arguments))


@asynccontextmanager
async def running_addresses(
    settings: Settings,
    folder: Path,
    *,
    modules: Oss | None = None,
    calls: Mapping[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Addresses]:
    """Start API, worker and modules over the test's own parts; `changes` replace settings of addresses.

    Args:
        modules: Those that run already; by default others are started.
        calls: Settings of every module that are to be others.
    """
    async with nullcontext(modules) if modules else running_oss(folder) as modules:
        addresses = module_settings(modules.base, folder, **{"batch": 500, "retries": 0, **(calls or {})})
        addresses = addresses.model_copy(update={"pause_seconds": 1.0, **changes})
        settings = settings.model_copy(update={"addresses": addresses})
        async with running_api(settings) as api_client, running_worker(settings, [names.QUEUE]) as working:
            running = Addresses(api_client, modules, working.services)
            try:
                yield running
            finally:
                await running.ask("POST", "cycle/pause", json=SIGNED)
