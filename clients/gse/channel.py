"""The way to GSE: headers, time-outs, and asking again where that is safe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import aiohttp
import msgspec

from clients.gse.answers import Answer
from clients.gse.failures import GseFailure, GseRefused, GseUnavailable, GseUnknown
from clients.gse.limiter import CallLimiter
from infra import log, metrics
from infra.settings import GseSettings

ANSWER_MAX_BYTES = 64 * 1024 * 1024
PAUSE_MAX_SECONDS = 30.0

T = TypeVar("T")
Read = Callable[[Answer], T]


class Channel:
    """Two pools of connections: one that keeps them, and one that opens a connection for each call that must not be
    repeated. On a kept connection, one that GSE had closed in between cannot be told from a call that it has begun.
    """

    _kept: aiohttp.ClientSession
    _fresh: aiohttp.ClientSession

    def __init__(self, settings: GseSettings) -> None:
        self._settings = settings
        self._limiter = CallLimiter(settings.concurrency, settings.calls_per_second)

    async def __aenter__(self) -> Self:
        self._kept = self._session(aiohttp.TCPConnector(limit=0))
        self._fresh = self._session(aiohttp.TCPConnector(limit=0, force_close=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._kept.close()
        await self._fresh.close()

    async def ask_once(self, path: str, body: dict[str, Any], read: Read[T]) -> T:
        """For what must not happen twice."""
        return await self._ask(self._fresh, path, body, read)

    async def ask(self, path: str, body: dict[str, Any], read: Read[T]) -> T:
        """For what may be repeated: failures that may pass are, and come out as GseUnavailable if they do not."""
        failure: GseUnavailable | GseUnknown | None = None
        for attempt in range(self._settings.retries + 1):
            if failure:
                await asyncio.sleep(self._pause_seconds(attempt, failure))
            try:
                return await self._ask(self._kept, path, body, read)
            except (GseUnavailable, GseUnknown) as error:
                failure = error
        assert failure  # noqa: S101 - there was an attempt
        raise GseUnavailable(str(failure), code=failure.code) from failure

    def _pause_seconds(self, attempt: int, failure: GseFailure) -> float:
        asked = failure.retry_after_seconds if isinstance(failure, GseUnavailable) else None
        own: float = self._settings.retry_pause_seconds * 2 ** (attempt - 1)
        return min(PAUSE_MAX_SECONDS, max(own, asked or 0))

    async def _ask(self, session: aiohttp.ClientSession, path: str, body: dict[str, Any], read: Read[T]) -> T:
        call = path.rpartition("/")[2]
        try:
            async with self._limiter.call():
                read_out = await self._answer(session, path, call, body, read)
        except GseFailure as failure:
            metrics.GSE_CALLS.labels(call, type(failure).__name__).inc()
            log.get(__name__).warning("gse_call_failed", call=call, kind=type(failure).__name__, error=str(failure))
            raise
        metrics.GSE_CALLS.labels(call, "ok").inc()
        return read_out

    async def _answer(
        self, session: aiohttp.ClientSession, path: str, call: str, body: dict[str, Any], read: Read[T]
    ) -> T:
        if not self._settings.base_url:
            raise GseRefused(
                "It is not set where GSE is. Set HAULAGE_GSE__BASE_URL to the root of the gateway's stage."
            )
        request_id = uuid4().hex
        url = self._settings.base_url.rstrip("/") + path
        headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
        where = f"GSE's {call} (request {request_id}) at {self._settings.base_url}"
        try:
            async with session.post(
                url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False
            ) as response:
                text = await _read(response)
                # Before the connection is left, which takes turns of the loop: who dies then has read it.
                return read(Answer(call, response.status, response.headers, text, request_id))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise GseUnavailable(f"{where} could not be reached ({type(error).__name__}). {_TRY}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise GseUnknown(f"{where} gave no whole answer ({type(error).__name__}). {_TRY}") from error

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        settings = self._settings
        authorization = {
            "bk_app_code": settings.app_code,
            "bk_app_secret": settings.app_secret.get_secret_value(),
            "bk_username": settings.username,
        }
        headers = {
            "User-Agent": "Haulage",
            "X-Bkapi-Authorization": json.dumps({name: value for name, value in authorization.items() if value}),
        }
        if settings.tenant_id:
            headers["X-Bk-Tenant-Id"] = settings.tenant_id
        return aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=settings.answer_timeout_seconds, sock_connect=settings.connect_timeout_seconds
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )


_TRY = "See whether the gateway runs and lets us in."


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > ANSWER_MAX_BYTES:
            raise GseUnknown(f"GSE answered with more than {ANSWER_MAX_BYTES:,} bytes. Ask for fewer agents at a time.")
    return bytes(body)
