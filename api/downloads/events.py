"""Streams of changes, by WebSocket and server-sent events; each sends the latest state and keeps no backlog."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import WSCloseCode, web
from pydantic import AwareDatetime, Field

from api.downloads import watching
from api.downloads.context import DownloadPath, get_status_reader, get_watch_registry, routes
from api.downloads.responses import DownloadResponse
from api.downloads.watching import LatestStatesSubscription, SubscriptionEndReason
from api.http import auth
from api.http.models import Request, Response
from api.http.problems import RequestRejected
from api.http.routes import Call, RouteAccess
from domain.faults import Missing, QuotaExhausted, Unauthenticated
from domain.secrets import KeyRight
from infra import log

SEND_SECONDS = 10.0
"""A subscriber whose connection accepts nothing for this long is disconnected."""

RECONNECT_MILLISECONDS = 1_000
CLOSE_SECONDS = 2.0
MESSAGE_MAX_BYTES = 4_096
"""Subscribers only send pongs."""

_CLOSE_CODES = {
    SubscriptionEndReason.FINISHED: WSCloseCode.OK,
    SubscriptionEndReason.LEFT: WSCloseCode.OK,
    SubscriptionEndReason.STOPPING: WSCloseCode.GOING_AWAY,
    SubscriptionEndReason.TOO_SLOW: WSCloseCode.TRY_AGAIN_LATER,
    SubscriptionEndReason.KEY_REVOKED: WSCloseCode.POLICY_VIOLATION,
}


class ReconnectHeaders(Request):
    """The headers of a browser that reconnects."""

    last_event_id: str | None = Field(
        default=None,
        alias="Last-Event-ID",
        max_length=100,
        description="id of the last event received; browsers send it",
    )


class TicketResponse(Response):
    """A ticket."""

    ticket: str
    url: str = Field(description="the address to connect to, with the ticket in it")
    expires_at: AwareDatetime = Field(description="until when it opens a connection")


@routes.get(
    "/v1/downloads/ws",
    access=RouteAccess.PROJECT,
    status=HTTPStatus.SWITCHING_PROTOCOLS,
    problems={watching.TOO_MANY_STREAMS: QuotaExhausted},
)
async def watch_project_by_socket(call: Call) -> web.WebSocketResponse:
    """Watch all downloads of the project by WebSocket.

    Each message is a download as `GET /v1/downloads/{task_id}` returns it: first those that run or ended within the
    last minute, then every change.
    """
    with get_watch_registry(call).count_stream_within_limit(call.project_id):
        async with get_watch_registry(call).watch_project(call.project_id) as subscription:
            return await send_updates_over_socket(call, subscription)


@routes.get(
    "/v1/downloads/{task_id}/ws",
    access=RouteAccess.PROJECT,
    takes_ticket=True,
    status=HTTPStatus.SWITCHING_PROTOCOLS,
    problems={watching.TOO_MANY_STREAMS: QuotaExhausted},
)
async def watch_download_by_socket(call: Call, path: DownloadPath) -> web.WebSocketResponse:
    """Watch a download by WebSocket.

    Each message is the download as `GET /v1/downloads/{task_id}` returns it: at once, and then at every change. After
    its final state the connection is closed with code 1000; 1001 and 1013 mean to reconnect.
    """
    with get_watch_registry(call).count_stream_within_limit(call.project_id):
        async with get_watch_registry(call).watch_download(call.project_id, path.task_id) as subscription:
            return await send_updates_over_socket(call, subscription)


@routes.get(
    "/v1/downloads/events",
    access=RouteAccess.PROJECT,
    media_type="text/event-stream",
    problems={watching.TOO_MANY_STREAMS: QuotaExhausted},
)
async def watch_project_by_events(call: Call) -> web.StreamResponse:
    """Watch all downloads of the project by server-sent events.

    Each event is a download as `GET /v1/downloads/{task_id}` returns it: first those that run or ended within the last
    minute, then every change. A client that reconnects starts anew.
    """
    with get_watch_registry(call).count_stream_within_limit(call.project_id):
        async with get_watch_registry(call).watch_project(call.project_id) as subscription:
            return await send_updates_as_events(call, subscription, None)


@routes.get(
    "/v1/downloads/{task_id}/events",
    access=RouteAccess.PROJECT,
    media_type="text/event-stream",
    also={HTTPStatus.NO_CONTENT: ""},
    problems={watching.TOO_MANY_STREAMS: QuotaExhausted},
)
async def watch_download_by_events(call: Call, path: DownloadPath, headers: ReconnectHeaders) -> web.StreamResponse:
    """Watch a download by server-sent events.

    Each event is the download as `GET /v1/downloads/{task_id}` returns it. The stream ends after its final state; a
    client that reconnects with the id of that event gets 204.
    """
    with get_watch_registry(call).count_stream_within_limit(call.project_id):
        async with get_watch_registry(call).watch_download(call.project_id, path.task_id) as subscription:
            return await send_updates_as_events(call, subscription, headers.last_event_id)


@routes.post(
    "/v1/downloads/{task_id}/ticket",
    access=RouteAccess.PROJECT,
    status=HTTPStatus.CREATED,
    right=KeyRight.READ,
    is_audited=False,
    problems={"not_found": Missing},
)
async def create_watch_ticket(call: Call, path: DownloadPath) -> TicketResponse:
    """Create a ticket with which a page in a browser watches the download by WebSocket without a key.

    It opens `GET /v1/downloads/{task_id}/ws?ticket=…` of this download for a minute, any number of times. A connection
    lasts until the download ends or the key is revoked.
    """
    await get_status_reader(call).read_status(call.project_id, path.task_id)
    socket = f"/v1/downloads/{path.task_id}/ws"
    token, until = await call.request.app[auth.AUTHENTICATOR].create_ticket(call.caller, socket)
    base = f"ws{call.public_base.removeprefix('http')}"
    return TicketResponse(url=f"{base}{socket}?ticket={token}", ticket=token, expires_at=until)


async def send_updates_over_socket(call: Call, subscription: LatestStatesSubscription) -> web.WebSocketResponse:
    """Send the updates of a subscription over a WebSocket."""
    ping_seconds = call.services.settings.api.ping_seconds
    socket = web.WebSocketResponse(
        heartbeat=ping_seconds, timeout=CLOSE_SECONDS, max_msg_size=MESSAGE_MAX_BYTES, compress=False
    )
    if not socket.can_prepare(call.request):
        raise RequestRejected(
            HTTPStatus.UPGRADE_REQUIRED,
            "upgrade_required",
            "This address speaks WebSocket, and the request asked for no upgrade.",
            "Use a WebSocket client; GET /v1/downloads/{task_id}/events streams the same over plain HTTP.",
        )
    await socket.prepare(call.request)
    async with _stream_while_authorized(call, subscription, _end_subscription_when_socket_closes(socket, subscription)):
        while (updates := await subscription.wait_for_updates()) is not None:
            for answer in updates:
                await _send_or_abort(socket.send_str(answer.model_dump_json()))
        ending = subscription.ending or SubscriptionEndReason.LEFT
        await socket.close(code=_CLOSE_CODES[ending], message=ending.encode())
    return socket


async def _end_subscription_when_socket_closes(
    socket: web.WebSocketResponse, subscription: LatestStatesSubscription
) -> None:
    async for _ in socket:
        pass
    subscription.end(SubscriptionEndReason.LEFT)


async def send_updates_as_events(
    call: Call, subscription: LatestStatesSubscription, last_event_id: str | None
) -> web.StreamResponse:
    """Send the updates of a subscription as server-sent events, without the one that the client received last."""
    settings = call.services.settings.api
    first = await subscription.wait_for_updates(0)
    if first and first[-1].state.is_final and _build_event_id(first[-1]) == last_event_id:
        # A browser would reconnect for ever; this response makes it stop.
        return web.Response(status=HTTPStatus.NO_CONTENT)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(call.request)
    async with _stream_while_authorized(call, subscription):
        await _send_event(response, f"retry: {RECONNECT_MILLISECONDS}\n\n")
        updates = first
        while updates is not None:
            for answer in updates:
                identity = _build_event_id(answer)
                if identity != last_event_id:
                    await _send_event(response, f"id: {identity}\ndata: {answer.model_dump_json()}\n\n")
                last_event_id = identity
            if not updates:
                await _send_event(response, ": ping\n\n")
            updates = await subscription.wait_for_updates(settings.ping_seconds)
    return response


async def _send_event(response: web.StreamResponse, text: str) -> None:
    await _send_or_abort(response.write(text.encode()))


async def _send_or_abort(sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await sending
    except TimeoutError:
        raise ConnectionAbortedError(f"the watcher took nothing for {SEND_SECONDS:g} s") from None


def _build_event_id(answer: DownloadResponse) -> str:
    """Return an id that is equal for equal states in every process, so that reconnecting clients get only changes."""
    text = answer.model_dump_json(exclude={"rows_per_second"})
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@asynccontextmanager
async def _stream_while_authorized(
    call: Call, subscription: LatestStatesSubscription, *others: Coroutine[Any, Any, None]
) -> AsyncIterator[None]:
    """Stream without a time limit, but end the subscription when the key is revoked."""
    call.remove_time_limit()
    tasks = [asyncio.create_task(each) for each in (_end_subscription_when_key_revoked(call, subscription), *others)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end_subscription_when_key_revoked(call: Call, subscription: LatestStatesSubscription) -> None:
    authenticator, seconds = call.request.app[auth.AUTHENTICATOR], call.services.settings.api.ping_seconds
    while subscription.ending is None:
        await asyncio.sleep(seconds)
        try:
            await authenticator.authenticate(call.request, call.route, is_response_started=True)
        except Unauthenticated:
            subscription.end(SubscriptionEndReason.KEY_REVOKED)
        except Exception as error:  # noqa: BLE001 (if the key cannot be checked now, it is checked later)
            log.get(__name__).warning("stream_key_check_failed", error=repr(error))
