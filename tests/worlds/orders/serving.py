"""Serving the platforms of all worlds, each under a number of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.worlds.answers import send
from tests.worlds.orders import record
from tests.worlds.orders.platform import WorldPlatform
from tests.worlds.orders.world import World

HOST = "127.0.0.1"


@dataclass
class WorldPlatforms:
    """The platforms of all worlds."""

    base: str = ""
    by_number: dict[str, WorldPlatform] = field(default_factory=dict)

    def add(self, number: str, world: World) -> WorldPlatform:
        """Open the platform of a world."""
        platform = self.by_number[number] = WorldPlatform(world, f"{self.base}/{number}")
        return platform


@asynccontextmanager
async def running_world_platforms() -> AsyncIterator[WorldPlatforms]:
    """Serve on a free port of 127.0.0.1."""
    platforms = WorldPlatforms()
    app = web.Application()

    async def answer(request: web.Request) -> web.StreamResponse:
        platform = platforms.by_number[request.match_info["number"]]
        return await send(request, platform.ask(request.match_info["path"], request.query, request.headers))

    async def renew(request: web.Request) -> web.StreamResponse:
        platform = platforms.by_number[request.match_info["number"]]
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        return await send(request, platform.renew(form))

    async def leave_date_out(_: web.Request, response: web.StreamResponse) -> None:
        if not response.headers.get("Date"):
            response.headers.popall("Date", None)

    app.on_response_prepare.append(leave_date_out)
    app.router.add_get("/{number}{path:/.*}", answer)
    app.router.add_post(f"/{{number}}{record.TOKEN_PATH}", renew)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        host, port = runner.addresses[0][:2]
        platforms.base = f"http://{host}:{port}"
        yield platforms
    finally:
        await runner.cleanup()
