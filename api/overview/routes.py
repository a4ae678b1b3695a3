"""The routes of the overview: one snapshot, and a stream of snapshots by server-sent events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from aiohttp import web

from api.http import auth
from api.http.routes import Access, Call, Routes
from api.overview.snapshot import OverviewResponse, SnapshotReader
from api.shared_reads import FRESH_SECONDS
from api.systems import import_apis
from domain.faults import Denied, Exhausted
from services.services import Services

RECONNECT_MILLISECONDS: Final = 2_000
SEND_TIMEOUT_SECONDS: Final = 10.0
"""A stream whose receiver reads nothing for so long is closed."""
TOO_MANY_STREAMS: Final = "too_many_streams"


class OverviewContext:
    """The snapshot reader of this process, and its open streams."""

    def __init__(self, services: Services) -> None:
        self.reader = SnapshotReader(services, import_apis())
        self.stopping = asyncio.Event()
        self._streams_max = services.settings.api.streams_per_project
        self._streams: Counter[str | None] = Counter()

    @contextmanager
    def count_stream(self, project_id: str | None) -> Iterator[None]:
        """Count an open stream of a project.

        Raises:
            Exhausted: The project has as many streams as it may.
        """
        if self._streams[project_id] >= self._streams_max:
            raise Exhausted(
                TOO_MANY_STREAMS,
                f"{self._streams_max} streams of this overview are open in this process, which is the limit.",
                "Close one, or poll GET /v1/overview.",
                violated=["project-streams"],
                retry_after_seconds=5,
            )
        self._streams[project_id] += 1
        try:
            yield
        finally:
            self._streams[project_id] -= 1
            self._streams += Counter()  # removes projects without streams

    async def wait_for_next(self) -> bool:
        """Wait until the next snapshot is due; return False if the process stops instead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                await self.stopping.wait()
        return not self.stopping.is_set()


CONTEXT = web.AppKey("overview_context", OverviewContext)


def _attach(app: web.Application, services: Services) -> None:
    context = app[CONTEXT] = OverviewContext(services)

    async def stop(_app: web.Application) -> None:
        context.stopping.set()

    app.on_shutdown.append(stop)


routes = Routes("overview", "The health of the components and the workload of every system.", attach=_attach)


@routes.get("/v1/overview", access=Access.PROJECTS)
async def read(call: Call) -> OverviewResponse:
    """Read the overview.

    A project sees its own figures, the admin key those of all projects, or of the one that it names. Figures are at
    most a few seconds old; those that take long to count are counted less often.
    """
    return await _read_snapshot(call)


@routes.get(
    "/v1/overview/events",
    access=Access.PROJECTS,
    media_type="text/event-stream",
    problems={TOO_MANY_STREAMS: Exhausted},
)
async def events(call: Call) -> web.StreamResponse:
    """Watch the overview by server-sent events.

    Each event is what `GET /v1/overview` answers; there is one every two seconds.
    """
    context, authenticator = call.request.app[CONTEXT], call.request.app[auth.AUTHENTICATOR]
    with context.count_stream(call.scope):
        first = await _read_snapshot(call)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(call.request)
        call.lift_time_limit()
        await _send(response, f"retry: {RECONNECT_MILLISECONDS}\n\n{_format_event(first)}")
        while await context.wait_for_next():
            try:
                # A stream ends when its key is revoked.
                await authenticator.authenticate(call.request, call.route)
            except Denied:
                break
            await _send(response, _format_event(await _read_snapshot(call)))
    return response


async def _read_snapshot(call: Call) -> OverviewResponse:
    return await call.request.app[CONTEXT].reader.read_snapshot(call.scope, is_admin=call.caller.is_admin)


def _format_event(overview: OverviewResponse) -> str:
    return f"event: overview\ndata: {overview.model_dump_json()}\n\n"


async def _send(response: web.StreamResponse, text: str) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
        await response.write(text.encode())
