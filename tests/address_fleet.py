"""A whole house with four stand-in modules that it calls, for tests that kill its parts while addresses change."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from cli.house import House, house
from domain.addresses.operations import Module
from infra.settings import Settings
from sims.oss.server import TOKEN, Oss, running_oss
from tests.stack import eventually

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Fleet:
    """A whole house, the modules that it calls, and who asks it."""

    running: House
    oss: Oss
    session: aiohttp.ClientSession

    @property
    def database_url(self) -> str:
        """Where a test looks into the log by itself."""
        return self.running.settings.database.url.get_secret_value().replace("+asyncpg", "")

    async def fetch(self, statement: str) -> list[asyncpg.Record]:
        """Look into the database."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    async def rows(self) -> dict[int, asyncpg.Record]:
        """All messages, by their ids."""
        connection = await asyncpg.connect(self.database_url)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                live = await connection.fetch("SELECT * FROM im_infi_addr_sync_log")
                done = await connection.fetch("SELECT * FROM im_infi_addr_sync_log_his")
        finally:
            await connection.close()
        assert not {row["id"] for row in live} & {row["id"] for row in done}
        return {row["id"]: row for row in (*live, *done)}

    async def settled(self) -> dict[int, asyncpg.Record]:
        """Wait until everything is done."""

        async def done() -> dict[int, asyncpg.Record]:
            rows = await self.rows()
            return rows if {row["proc_flag"] for row in rows.values()} == {"Y"} else {}

        return await eventually(done, timeout=PATIENCE_SECONDS)

    def states(self, module: Module) -> dict[int, tuple[int, Any]]:
        """What a module has of each UPRN."""
        live = self.oss.modules[module].live()
        return {uprn: (each.address_id, each.record) for uprn, each in live.items()}


@asynccontextmanager
async def fleet(own: dict[str, str]) -> AsyncIterator[Fleet]:
    """Everything that `haulage up` starts, with modules that it may reach.

    Args:
        own: Settings below `HAULAGE_ADDRESSES__`.
    """
    folder = Path(tempfile.mkdtemp(prefix="haulage-addresses-"))
    (folder / "oss.json").write_text(json.dumps({"token": TOKEN}))
    own = {
        "CREDENTIALS_FOLDER": str(folder),
        "RUN_MESSAGES": "10",
        "THRESHOLD": "100",
        "PAUSE_SECONDS": "1",
        "RETRIES": "1000",
        **own,
    }
    async with running_oss(folder) as oss:
        for module in Module:
            own |= {f"MODULES__{module.upper()}__BASE_URL": oss.url(module)}
            own |= {f"MODULES__{module.upper()}__CREDENTIALS": "oss"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in own.items():
                patch.setenv(f"HAULAGE_ADDRESSES__{name}", value)
            try:
                settings = Settings().model_copy(update={"data_dir": folder / "data"})
                async with house(settings) as running, aiohttp.ClientSession() as session:
                    yield Fleet(running, oss, session)
            finally:
                shutil.rmtree(folder)
