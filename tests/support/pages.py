"""Sources that tests write themselves: what each page is answered with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from infra.settings import Settings
from tests.support.downloads import Downloads, running_downloads


@dataclass(frozen=True)
class Late:
    """An answer that comes after a while."""

    seconds: float
    body: dict[str, Any] | int


Answer = Callable[[int, int], dict[str, Any] | int | bytes | Late]
"""What a page of a size is answered with: its body, as bytes if it is no plain JSON, or another status."""


@asynccontextmanager
async def asking(
    settings: Settings, answer: Answer, resume_window_seconds: int = 60, *, retry_pause_seconds: float = 0.01
) -> AsyncIterator[tuple[Downloads, str]]:
    """Downloads, and the address of a source that answers so."""

    async def rows(request: web.Request) -> web.Response:
        found = answer(int(request.query["page"]), int(request.query["page_size"]))
        if isinstance(found, Late):
            await asyncio.sleep(found.seconds)
            found = found.body
        if isinstance(found, bytes):
            return web.Response(body=found, content_type="application/json")
        return web.Response(status=found) if isinstance(found, int) else web.json_response(found)

    app = web.Application()
    app.router.add_get("/rows", rows)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        guard = settings.guard.model_copy(update={"allow": [*settings.guard.allow, f"{host}:{port}"]})
        settings = settings.model_copy(update={"guard": guard})
        async with running_downloads(
            settings, resume_window_seconds, retry_pause_seconds=retry_pause_seconds
        ) as downloads:
            yield downloads, f"http://{host}:{port}/rows"
    finally:
        await runner.cleanup()


def part(rows: list[dict[str, Any]], page: int, size: int) -> list[dict[str, Any]]:
    """A page of rows, counted from 0."""
    return rows[page * size : (page + 1) * size] if page >= 0 else []
