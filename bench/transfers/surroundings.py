"""What both contenders find: a GSE with its hosts, and a repository that counts how often a file is fetched."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from sims.gse.scenario import GseScenario

FILE_BYTES = 64 * 1024
SCENARIO = GseScenario(upload_seconds=0.2, download_seconds=3, swarm=0.1, jitter_seconds=6)
_MEMORY = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it
HOSTS_FOLDER = _MEMORY if _MEMORY.is_dir() else None
"""Where hosts' files lie: in memory if there is such a folder, so that disks measure nothing."""
ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class FileDelivery:
    """A file that has arrived."""

    task_id: str
    at: float


def find_first_deliveries(targets: Sequence[Mapping[str, Any]]) -> dict[str, FileDelivery]:
    """Return by agent when its file arrived first; nothing of those where none did."""
    arrived = [each for each in targets if each["finished_at"] and each["code"] == 0]
    arrived.sort(key=lambda each: -each["finished_at"])
    return {each["agent_id"]: FileDelivery(each["task_id"], each["finished_at"]) for each in arrived}


@dataclass(frozen=True)
class GseProcess:
    """A stand-in GSE in a process of its own."""

    base: str
    pid: int
    _session: aiohttp.ClientSession

    async def stats(self) -> dict[str, Any]:
        """Its counts."""
        counts: dict[str, Any] = await self._read_view("stats")
        return counts

    async def tasks(self) -> list[dict[str, Any]]:
        """Each transfer: when it began, how many targets, when it was asked after."""
        found: list[dict[str, Any]] = await self._read_view("tasks")
        return found

    async def deliveries(self) -> dict[str, FileDelivery]:
        """When each agent had its file, and in which transfer: the first one, where it was sent more than once."""
        return find_first_deliveries(await self._read_view("targets"))

    async def forget(self) -> None:
        """Begin anew."""
        for deed in ("restart", "clear"):
            async with self._session.post(f"/_sim/{deed}"):
                pass

    async def _read_view(self, view: str) -> Any:
        async with self._session.get(f"/_sim/{view}") as answer:
            return await answer.json()


@asynccontextmanager
async def running_gse() -> AsyncIterator[GseProcess]:
    """As many hosts as are named to it."""
    with tempfile.TemporaryDirectory(dir=HOSTS_FOLDER) as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "sims.gse", "--folder", folder, "--links", "--scenario", SCENARIO.model_dump_json()),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout  # noqa: S101 - it was asked for
            base = json.loads(await process.stdout.readline())["url"]
            async with aiohttp.ClientSession(base_url=base) as session:
                yield GseProcess(base, process.pid, session)
        finally:
            process.terminate()
            await process.wait()


@dataclass
class BenchRepository:
    """Files by their path, each with a content of its own."""

    base: str = ""
    fetches: Counter[str] = field(default_factory=Counter)

    def content(self, path: str) -> bytes:
        """The file."""
        return hashlib.shake_128(path.encode()).digest(FILE_BYTES)

    def signature(self, path: str) -> str:
        """Its SHA-256."""
        return hashlib.sha256(self.content(path)).hexdigest()


@asynccontextmanager
async def running_repository() -> AsyncIterator[BenchRepository]:
    """Serve on a free port of 127.0.0.1."""
    repository = BenchRepository()

    async def fetch(request: web.Request) -> web.Response:
        repository.fetches[request.path] += 1
        return web.Response(body=repository.content(request.path))

    app = web.Application()
    app.router.add_get("/{path:.+}", fetch)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        repository.base = f"http://{host}:{port}"
        yield repository
    finally:
        await runner.cleanup()


def run_name() -> str:
    """A name that no earlier run had."""
    return os.urandom(4).hex()
