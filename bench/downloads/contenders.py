"""The contenders: Haulage through API and store, and the peers, each in a process and an environment of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from bench import usage
from bench.peers import environments
from dev.local import LocalInstallation

SYSTEM = "downloads"
PAGE_SIZE = 1_000
READ_BYTES = 1024 * 1024


class ExportFailed(Exception):
    """A contender did not deliver."""


@dataclass(frozen=True)
class ExportRun:
    """What one run took, and the files that it left; `serving` holds CPU seconds of the parts that served it."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    files: list[Path]
    serving: Mapping[str, float]


class Exporter(Protocol):
    """Makes CSV of a source."""

    name: str

    async def run(self, url: str, rows: int, folder: Path) -> ExportRun:
        """Export all rows into the folder."""


class ScriptExport:
    """A script of `bench/peers/downloads/`."""

    def __init__(self, name: str, module: str, running: LocalInstallation) -> None:
        self.name = name
        self._module = module
        self._running = running

    async def run(self, url: str, rows: int, folder: Path) -> ExportRun:
        """Its own clock counts, from the first request to the closed file."""
        async with usage.measure_usage(self._running) as use:
            printed = await environments.run_peer(SYSTEM, self._module, url, str(PAGE_SIZE), str(folder))
        took: dict[str, float] = json.loads(printed.splitlines()[-1])
        serving = {usage.SOURCE: use.cpu_seconds[usage.STAND_INS]}
        return ExportRun(**took, files=list_files(folder), serving=serving)


class HaulageExport:
    """A download of a project, as any business system would ask for it."""

    name = "ours"

    def __init__(
        self, running: LocalInstallation, session: aiohttp.ClientSession, type_: str = "csv", **more: str
    ) -> None:
        self._running = running
        self._session = session
        self._type = type_
        self._more = more

    def asking(self, type_: str, **more: str) -> HaulageExport:
        """The same project asking for files of another type, and more of them."""
        return HaulageExport(self._running, self._session, type_, **more)

    @classmethod
    async def register(cls, running: LocalInstallation, session: aiohttp.ClientSession) -> HaulageExport:
        """As a project of its own."""
        headers = {"Authorization": f"Bearer {running.admin_key}"}
        made = await read_json(session.post("/v1/projects", json={"name": "bench"}, headers=headers))
        session.headers["Authorization"] = f"Bearer {made['key']['api_key']}"
        return cls(running, session)

    async def run(self, url: str, rows: int, folder: Path) -> ExportRun:
        """From the request until the file is ready in the store; fetching it from there is not counted."""
        clock = asyncio.get_running_loop().time
        async with usage.measure_usage(self._running) as use:
            began = clock()
            status = await self._export(url)
            seconds = clock() - began
        if (status["state"], status["rows"]) != ("succeeded", rows):
            raise ExportFailed(f"the export did not end right: {status}")
        path = folder / f"rows.{self._type}"
        await self._save(status["task_id"], path)
        serving = {name: use.cpu_seconds[name] for name in usage.SERVING}
        serving[usage.SOURCE] = use.cpu_seconds[usage.STAND_INS]
        return ExportRun(seconds, use.own_cpu_seconds, use.own_peak_bytes / 1024**2, [path], serving)

    async def _export(self, url: str) -> dict[str, Any]:
        """Watch the download to its end: unlike asking again and again, that costs the API next to nothing."""
        request = {"source_url": url, "page_size": PAGE_SIZE, "type": self._type, **self._more}
        status = await read_json(self._session.post("/v1/downloads", json=request))
        async with self._session.ws_connect(f"/v1/downloads/{status['task_id']}/ws") as socket:
            async for message in socket:
                status = message.json()
        return status

    async def _save(self, task_id: str, path: Path) -> None:
        async with self._session.get(f"/v1/downloads/{task_id}/file", allow_redirects=False) as answer:
            link = answer.headers["Location"]
        # The link carries its own signature; our key is none of the store's business.
        async with aiohttp.ClientSession(raise_for_status=True) as plain, plain.get(link) as answer:
            with path.open("wb") as out:
                async for piece in answer.content.iter_chunked(READ_BYTES):
                    out.write(piece)


def list_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.csv"))


async def read_json(request: Any) -> dict[str, Any]:
    async with request as answer:
        body: dict[str, Any] = await answer.json()
        if answer.status >= 400:
            raise ExportFailed(f"{answer.method} {answer.url.path} answered {answer.status}: {body}")
        return body
