"""What all contenders share: stand-in platforms in a process of their own, and a database."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sims.platforms.scenario import Changes, PlatformScenario

ROOT = Path(__file__).parent.parent.parent
START = datetime(2026, 1, 1, tzinfo=UTC)
SPAN_SECONDS = 90 * 86_400
CHANGES = Changes(per_second=100, created_share=0.2, late_share=0.2, late_seconds=60)
"""While contenders read: two orders in ten are new, two changes in ten become visible up to a minute late."""
SETTLED_SECONDS = 7 * 86_400
_LEDGER = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True)
class Platform:
    """One platform of one run."""

    url: str
    number: str
    _session: aiohttp.ClientSession

    async def freeze(self) -> None:
        """Let nothing change any more, let all be shown, and let so much time pass that it has settled."""
        await self._do("freeze")
        await self._do(f"advance?seconds={SETTLED_SECONDS}")

    async def now(self) -> str:
        """Its time."""
        async with self._session.get(f"/_sim/{self.number}/now") as answer:
            return str((await answer.json())["now"])

    async def ledger(self) -> Mapping[str, Any]:
        """What is true."""
        async with self._session.get(f"/_sim/{self.number}/ledger") as answer:
            return _LEDGER.decode(await answer.read())

    async def stats(self) -> Mapping[str, Any]:
        """Return the counts of requests."""
        async with self._session.get(f"/_sim/{self.number}/stats") as answer:
            body: dict[str, Any] = await answer.json()
            return body

    async def forget(self) -> None:
        """Delete the platform and its orders."""
        async with self._session.put(f"/_sim/{self.number}", json={"orders": 0}):
            pass

    async def _do(self, deed: str) -> None:
        async with self._session.post(f"/_sim/{self.number}/{deed}") as answer:
            answer.raise_for_status()


@dataclass(frozen=True)
class Platforms:
    """The process that plays them."""

    base: str
    pid: int
    _session: aiohttp.ClientSession

    async def begin(self, orders: int, seed: int) -> Platform:
        """A platform as every contender finds it, its clock just started."""
        number = secrets.token_hex(4)
        scenario = PlatformScenario(
            seed=seed, orders=orders, start=START, span_seconds=SPAN_SECONDS, speed=1, crowd_share=0.1, changes=CHANGES
        )
        async with self._session.put(f"/_sim/{number}", data=scenario.model_dump_json()) as answer:
            return Platform((await answer.json())["url"], number, self._session)


@asynccontextmanager
async def running_platforms() -> AsyncIterator[Platforms]:
    """In a process of their own, so that readers are not slowed by the platform."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sims.platforms", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout  # noqa: S101 - it was asked for
        base = json.loads(await process.stdout.readline())["url"]
        async with aiohttp.ClientSession(base_url=base) as session:
            yield Platforms(base, process.pid, session)
    finally:
        process.terminate()
        await process.wait()
