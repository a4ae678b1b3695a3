"""An outside service of every kind that repeats what it was sent, secrets included, in answers that are wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.transfers import CONTENT, sha256

MARK = "echo-of"
"""Stands before what is repeated: where it is found, an answer was quoted."""


@dataclass
class EchoService:
    """Where it is, and which kinds of calls it had."""

    base: str = ""
    seen: dict[str, int] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        """Repeat a request: as a refusal, as a failure, as no JSON, or as JSON of an error, by its first folders."""
        kind, _, rest = request.match_info["rest"].partition("/")
        self.seen[kind] = self.seen.get(kind, 0) + 1
        body = (await request.read()).decode(errors="replace")
        said = f"{MARK} {kind} {request.rel_url} {dict(request.headers)} {body[:2_000]}"
        match kind, rest.partition("/")[0]:
            case "repository", _ if sha256(CONTENT) in request.path:
                return web.Response(body=CONTENT)
            case _, "refuses":
                return web.Response(status=403, text=said)
            case _, "fails":
                return web.Response(status=500, text=said)
            case _, "raves":
                return web.Response(text=said)
        error = {"code": 500, "status": 500, "error": said, "message": said, "msg": said, "error_description": said}
        return web.json_response(error, status=400 if kind == "pubsub" else 200)


@asynccontextmanager
async def running_echo() -> AsyncIterator[EchoService]:
    """Run it on a free port of 127.0.0.1."""
    service = EchoService()
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_route("*", "/{rest:.*}", service.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        service.base = f"http://{host}:{port}"
        yield service
    finally:
        await runner.cleanup()
