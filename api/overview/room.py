"""The overview's routes: at once, and then whenever there is something new."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from aiohttp import web

from api.http import auth
from api.http.routes import Access, Call, Routes
from api.overview.answers import Overview
from api.overview.board import Board
from api.shared_reads import FRESH_SECONDS
from api.systems import import_apis
from domain.faults import Denied, Exhausted
from services.services import Services

RECONNECT_MILLISECONDS: Final = 2_000
SEND_SECONDS: Final = 10.0
"""A watcher whose line takes nothing for so long is dropped."""
TOO_MANY: Final = "too_many_streams"


class Window:
    """The board, and who looks at it all the time."""

    def __init__(self, services: Services) -> None:
        self.board = Board(services, import_apis())
        self.stopping = asyncio.Event()
        self._most = services.settings.api.streams_per_project
        self._open: Counter[str | None] = Counter()

    @contextmanager
    def stream(self, project_id: str | None) -> Iterator[None]:
        """Count one more open stream.

        Raises:
            Exhausted: There are as many as there may be.
        """
        if self._open[project_id] >= self._most:
            raise Exhausted(
                TOO_MANY,
                f"There are {self._most} streams of this overview open here, as many as there may be.",
                "Close one, or ask GET /v1/overview now and then.",
                violated=["project-streams"],
                retry_after_seconds=5,
            )
        self._open[project_id] += 1
        try:
            yield
        finally:
            self._open[project_id] -= 1
            self._open += Counter()  # forgets who has none


WINDOW = web.AppKey("overview_window", Window)


def _attach(app: web.Application, services: Services) -> None:
    window = app[WINDOW] = Window(services)

    async def stop(_app: web.Application) -> None:
        window.stopping.set()

    app.on_shutdown.append(stop)


routes = Routes("overview", "How the parts do, and what every room has to do.", attach=_attach)


@routes.get("/v1/overview", access=Access.PROJECTS)
async def read(call: Call) -> Overview:
    """See the whole at a glance.

    A project sees its own figures, the admin key those of all projects, or of the one that it names. Figures are at
    most a few seconds old; those that take long to count are counted less often.
    """
    return await _overview(call)


@routes.get(
    "/v1/overview/events", access=Access.PROJECTS, media_type="text/event-stream", problems={TOO_MANY: Exhausted}
)
async def events(call: Call) -> web.StreamResponse:
    """Watch the whole by server-sent events.

    Each event is what `GET /v1/overview` shows; there is one every two seconds.
    """
    window, authenticator = call.request.app[WINDOW], call.request.app[auth.AUTHENTICATOR]
    with window.stream(call.scope):
        first = await _overview(call)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(call.request)
        call.lift_time_limit()
        await _send(response, f"retry: {RECONNECT_MILLISECONDS}\n\n{_event(first)}")
        while not await _stops(window):
            try:
                # Whoever's key is revoked sees nothing more.
                await authenticator.authenticate(call.request, call.route)
            except Denied:
                break
            await _send(response, _event(await _overview(call)))
    return response


async def _overview(call: Call) -> Overview:
    return await call.request.app[WINDOW].board.read(call.scope, is_admin=call.caller.is_admin)


def _event(overview: Overview) -> str:
    return f"event: overview\ndata: {overview.model_dump_json()}\n\n"


async def _stops(window: Window) -> bool:
    """Wait for the next turn; whether there is none."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FRESH_SECONDS):
            await window.stopping.wait()
    return window.stopping.is_set()


async def _send(response: web.StreamResponse, text: str) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await response.write(text.encode())
