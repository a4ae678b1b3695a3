"""A Haulage API and its store as a client may meet them on a bad day: scripted answers, connections that break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TASK = "dl_" + "0" * 24


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    line: str
    headers: dict[str, str]
    query: dict[str, str]
    body: Any


@dataclass
class ApiPeer:
    """What it answers next, and what came."""

    url: str = ""
    answers: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    """Statuses, bodies and headers of the API, in order; None as body breaks the connection."""
    content: bytes = b""
    etag: str = '"one"'
    breaks: list[int] = field(default_factory=list)
    """After how many bytes each next answer of the store breaks off."""
    expired_links: int = 0
    seen: list[Seen] = field(default_factory=list)
    fetched: list[Seen] = field(default_factory=list)

    def says(self, status: int, body: Any, **headers: str) -> None:
        """Answer so, when it is next asked."""
        self.answers.append((status, body, headers))

    async def api(self, request: web.Request) -> web.StreamResponse:
        """The API: what was scripted, and links to the file."""
        body = await request.json() if request.can_read_body else None
        self.seen.append(Seen(f"{request.method} {request.path}", dict(request.headers), dict(request.query), body))
        if request.path.endswith("/file"):
            return web.Response(
                status=302, headers={"X-Request-Id": "req-1", "Location": f"{self.url}/store/file?sig=a%2Fb"}
            )
        status, answer, headers = self.answers.pop(0)
        if answer is None:
            _break(request)
        if isinstance(answer, str):
            return web.Response(status=status, text=answer, content_type="text/html", headers=headers)
        return web.json_response(answer, status=status, headers=headers)

    async def store(self, request: web.Request) -> web.StreamResponse:
        """The store: the file from the byte that was asked for."""
        self.fetched.append(Seen(request.path_qs, dict(request.headers), {}, None))
        if self.expired_links:
            self.expired_links -= 1
            return web.Response(status=403)
        asked = request.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if request.headers.get("If-Range", self.etag) != self.etag:
            start, asked = 0, ""
        headers = {"ETag": self.etag, "Content-Length": str(len(self.content) - start)}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"
        answer = web.StreamResponse(status=206 if asked else 200, headers=headers)
        await answer.prepare(request)
        end = start + self.breaks.pop(0) if self.breaks else len(self.content)
        await answer.write(self.content[start:end])
        if end < len(self.content):
            _break(request)
        return answer


def _break(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.close()


def status(**changes: Any) -> dict[str, Any]:
    """What the API answers about a download, with a field that this client does not know."""
    return {
        "task_id": TASK,
        "state": "running",
        "phase": "fetching",
        "rows": 0,
        "file_name": "orders.csv",
        "created_at": "2026-01-02T03:04:05Z",
        "added_later": {"x": 1},
        **changes,
    }


def problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """A problem as Haulage answers it."""
    return {"status": status, "code": code, "detail": detail, "request_id": "req-1", "errors": [], **more}


@asynccontextmanager
async def running_api_peer() -> AsyncIterator[ApiPeer]:
    """Both, on a free port."""
    peer = ApiPeer()
    app = web.Application()
    app.router.add_route("*", "/store/file", peer.store)
    app.router.add_route("*", "/{path:.*}", peer.api)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield peer
    await runner.cleanup()
