"""The repository of all worlds: what it answers is a function of the world, the content and how often it was asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.worlds.transfers.flaws import TransferFlawGroup
from tests.worlds.transfers.naming import TransferNames

HOST = "127.0.0.1"
SLOW_SECONDS = 1.5
WRONG_ONCE = ("file_cut", "file_short", "file_is_another", "file_missing")
"""Flaws that, where they pass, are gone at the second try: the same wrong answer twice is believed."""


@dataclass
class WorldRepository:
    """The files of one world."""

    names: TransferNames
    fired: set[str] = field(default_factory=set)
    _attempts: Counter[str] = field(default_factory=Counter)

    async def answer(self, request: web.Request, signature: str) -> web.StreamResponse:
        """Send a file, or what the world's flaw makes of it."""
        contents = {file.content for file in self.names.world.files}
        content = next((each for each in contents if self.names.signature(each) == signature), None)
        if content is None:
            return web.Response(status=404)
        self._attempts[signature] += 1
        body = self.names.content(content)
        flaw = self.names.world.group(TransferFlawGroup.REPOSITORY)
        if flaw is None or not self._is_hit(content, self._attempts[signature]):
            return web.Response(body=body)
        self.fired.add(flaw.name)
        match flaw.name:
            case "file_cut":
                return await _send_cut(request, body)
            case "file_short":
                return web.Response(body=body[: len(body) * flaw.dial // 1_000])
            case "file_is_another":
                return web.Response(body=body[:-1] + b"x" if flaw.dial % 2 else b"<html>Please log in</html>")
            case "file_missing":
                return web.Response(status=(404, 403, 410)[flaw.dial % 3])
            case "repository_down":
                return web.Response(status=(500, 502, 503, 429)[flaw.dial % 4], text="<html>down</html>")
            case _:
                await asyncio.sleep(SLOW_SECONDS)
                return web.Response(body=body)

    def _is_hit(self, content: int, attempt: int) -> bool:
        flaw = self.names.world.group(TransferFlawGroup.REPOSITORY)
        if flaw is None or not is_spoiled(self.names, content):
            return False
        tries = 1 if flaw.name in WRONG_ONCE else 1 + flaw.dial % 3
        return not flaw.passes or attempt <= tries


def is_spoiled(names: TransferNames, content: int) -> bool:
    """Whether a world's repository has trouble with a content: with the first one always, with others perhaps."""
    flaw = names.world.group(TransferFlawGroup.REPOSITORY)
    return flaw is not None and (content == 0 or flaw.dial % 2 == 1)


async def _send_cut(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return response


@dataclass
class Repositories:
    """The repositories of all worlds, behind one port."""

    base: str = ""
    worlds: dict[int, WorldRepository] = field(default_factory=dict)

    @property
    def template(self) -> str:
        """The setting that leads here."""
        return self.base + "/{app_id}/{signature}"

    def add(self, names: TransferNames) -> WorldRepository:
        """Open a world's repository."""
        repository = self.worlds[names.number] = WorldRepository(names)
        return repository


@asynccontextmanager
async def running_repositories() -> AsyncIterator[Repositories]:
    """Serve on a free port of 127.0.0.1."""
    repositories = Repositories()
    app = web.Application()

    async def answer(request: web.Request) -> web.StreamResponse:
        world = repositories.worlds.get(int(request.match_info["app_id"]))
        return await world.answer(request, request.match_info["signature"]) if world else web.Response(status=404)

    app.router.add_get("/{app_id}/{signature}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        host, port = runner.addresses[0][:2]
        repositories.base = f"http://{host}:{port}"
        yield repositories
    finally:
        await runner.cleanup()
