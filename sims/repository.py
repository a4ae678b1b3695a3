"""A repository of files: `GET /files/SHA256` answers a file that was put there, and `PUT /files` stores one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from sims.common import PageTable, add_lie, add_page, answer_line

HOST = "127.0.0.1"
BODY_MAX_BYTES = 256 * 1024 * 1024
SAMPLE = b"".join(b"setting_%03d = %d\n" % (number, number * number) for number in range(400))
"""The file that is there from the beginning."""
SAMPLE_SIGNATURE = hashlib.sha256(SAMPLE).hexdigest()


@dataclass
class Repository:
    """The files by their SHA-256."""

    base: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    fetched: Counter[str] = field(default_factory=Counter)
    lies: bool = False
    """Whether files are answered with other bytes than were put there."""

    def set_lying(self, lies: bool) -> None:
        """Begin or end to answer other bytes than were put here."""
        self.lies = lies

    def describe(self) -> list[PageTable]:
        """Return the files for the page."""
        rows = [
            {"signature (SHA-256)": name, "bytes": f"{len(content):,}", "fetched": self.fetched[name]}
            for name, content in self.files.items()
        ]
        return [PageTable("Files", rows, "Store one: curl -T FILE …/files answers its signature.")]

    def put(self, content: bytes) -> str:
        """Store a file; return its signature."""
        signature = hashlib.sha256(content).hexdigest()
        self.files[signature] = content
        return signature


REPOSITORY = web.AppKey("repository", Repository)


@asynccontextmanager
async def running_repository(port: int = 0) -> AsyncIterator[Repository]:
    """Serve on 127.0.0.1 with the sample file; port 0 picks a free one."""
    repository = Repository()
    repository.put(SAMPLE)
    app = web.Application(client_max_size=BODY_MAX_BYTES)
    app[REPOSITORY] = repository
    app.router.add_put("/files", _put)
    app.router.add_get("/files/{signature}", _get)
    add_page(
        app, "File repository", "Stands in for the repository that transfers fetch files from.", repository.describe
    )
    add_lie(app, repository.set_lying)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        host, bound_port = runner.addresses[0][:2]
        repository.base = f"http://{host}:{bound_port}"
        yield repository
    finally:
        await runner.cleanup()


async def _put(request: web.Request) -> web.Response:
    return answer_line({"signature": request.app[REPOSITORY].put(await request.read())}, status=201)


async def _get(request: web.Request) -> web.Response:
    repository, signature = request.app[REPOSITORY], request.match_info["signature"]
    content = repository.files.get(signature)
    if content is None:
        return web.json_response({"error": f"There is no file {signature}."}, status=404)
    repository.fetched[signature] += 1
    return web.Response(body=b"lie" + content[3:] if repository.lies else content)
