"""The connection to GSE: keys, headers, timeouts, and which calls are repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

import msgspec

from clients.gse.responses import GseFailure, GseRefused, GseResponse, GseUnavailable, GseUnknown
from clients.http import (
    CallLimiter,
    CircuitBreaker,
    HttpTransport,
    RetryPolicy,
    ServiceCaller,
    TransportError,
    TransportFault,
)
from infra.settings import GseSettings

ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024

_ADVICE: Final = "See whether the gateway runs and lets us in."

T = TypeVar("T")


class GseConnection:
    """Makes calls to GSE. One that must not happen twice has a connection of its own.

    On a kept connection, a call that GSE has begun looks the same as a connection that it has closed meanwhile.
    """

    def __init__(self, settings: GseSettings) -> None:
        self._settings = settings
        self._kept = HttpTransport(connect_timeout_seconds=settings.connect_timeout_seconds)
        self._single = HttpTransport(connect_timeout_seconds=settings.connect_timeout_seconds, keeps_connections=False)
        self._headers = _build_headers(settings)
        self._caller = ServiceCaller(
            "gse",
            retry=RetryPolicy.exponential(settings.retries, settings.retry_pause_seconds),
            limiter=CallLimiter(settings.concurrency, settings.calls_per_second),
            breaker=CircuitBreaker(settings.breaker_failures, settings.breaker_seconds),
            build_open_failure=self._build_open_failure,
        )

    async def __aenter__(self) -> Self:
        await self._kept.__aenter__()
        await self._single.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._kept.__aexit__(kind, error, traceback)
        await self._single.__aexit__(kind, error, traceback)

    async def call_once(self, path: str, body: dict[str, Any], read: Callable[[GseResponse], T]) -> T:
        """Make a call that must not happen twice; raises GseFailure.

        `read` is called before the connection is released, which takes turns of the event loop.
        """
        name = _name(path)
        return await self._caller.call(name, lambda: self._attempt(self._single, path, body, read), repeats=False)

    async def call(self, path: str, body: dict[str, Any], read: Callable[[GseResponse], T]) -> T:
        """Make a call that may be repeated; raises GseRefused, or GseUnavailable after the last transient failure."""
        try:
            return await self._caller.call(_name(path), lambda: self._attempt(self._kept, path, body, read))
        except (GseUnavailable, GseUnknown) as failure:
            raise GseUnavailable(
                str(failure), code=failure.code, retry_after_seconds=failure.retry_after_seconds
            ) from failure

    async def _attempt(
        self, transport: HttpTransport, path: str, body: dict[str, Any], read: Callable[[GseResponse], T]
    ) -> T:
        settings, request_id, name = self._settings, uuid4().hex, _name(path)
        if not settings.base_url:
            raise GseRefused(
                "It is not set where GSE is. Set HAULAGE_GSE__BASE_URL to the root of the gateway's stage."
            )
        url, headers = settings.base_url.rstrip("/") + path, {**self._headers, "X-Request-Id": request_id}
        content, timeout = msgspec.json.encode(body), settings.answer_timeout_seconds
        try:
            async with transport.exchange("POST", url, headers, content, timeout) as exchange:
                response = await exchange.read(ANSWER_MAX_BYTES)
                return read(GseResponse(name, response.status, response.headers, response.body, request_id))
        except TransportError as error:
            raise self._explain(error, f"GSE's {name} (request {request_id}) at {settings.base_url}") from error

    def _explain(self, error: TransportError, call: str) -> GseFailure:
        if error.fault is TransportFault.TOO_LARGE:
            return GseUnknown(f"{call} answered with more than {error.detail}. Ask for fewer agents at a time.")
        if error.is_unsent:
            return GseUnavailable(f"{call} could not be reached ({error}). {_ADVICE}")
        return GseUnknown(f"{call} gave no whole answer ({error}). {_ADVICE}")

    def _build_open_failure(self, breaker: CircuitBreaker) -> GseFailure:
        return GseUnavailable(
            f"GSE at {self._settings.base_url} {breaker.describe()}",
            retry_after_seconds=breaker.open_seconds,
        )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _build_headers(settings: GseSettings) -> Mapping[str, str]:
    authorization = {
        "bk_app_code": settings.app_code,
        "bk_app_secret": settings.app_secret.get_secret_value(),
        "bk_username": settings.username,
    }
    headers = {
        "Content-Type": "application/json",
        "X-Bkapi-Authorization": json.dumps({name: value for name, value in authorization.items() if value}),
    }
    if settings.tenant_id:
        headers["X-Bk-Tenant-Id"] = settings.tenant_id
    return headers
