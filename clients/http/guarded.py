"""The guarded client: every request to an address that a user gave goes through it."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

from aiohttp.abc import AbstractResolver
from yarl import URL

from clients.http.transport import (
    HEADER_MAX_BYTES,
    NO_HEADERS,
    AddressDenied,
    HttpResponse,
    HttpTransport,
    ResponseHead,
    StreamedResponse,
    TransportError,
    TransportFailureKind,
    WaitBeforeReadingBeyondSize,
)
from domain import egress
from domain.faults import Invalid, SourceFault
from infra import log
from infra.settings import EgressGuardSettings

# A path and query in these characters is sent as it was written, because a source may have signed it.
_QUOTED = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")

_is_own_api: ContextVar[bool] = ContextVar("is_own_api", default=False)

_SocketInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


class GuardedClient:
    """Connect only where the egress rules allow; report failures as faults for the user who gave the address.

    The rules are enforced where the socket is opened: there the address is the one that is connected to, whatever a
    URL's spelling, a lying name server or a redirect made of it. Earlier checks only give a clear message sooner.

    Args:
        own: The URL of the one route of our own API that may be called, which is reached wherever its name leads.
    """

    def __init__(
        self, settings: EgressGuardSettings, *, own: str = "", resolver: AbstractResolver | None = None
    ) -> None:
        self._rules = egress.EgressRules.parse(settings.allow, settings.ports, own)
        self._transport = HttpTransport(
            connect_timeout_seconds=settings.connect_timeout_seconds,
            connections=settings.pool_connections,
            open_socket_if_allowed=self.open_socket_if_allowed,
            resolver=resolver,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, traceback)

    def require_url_allowed_before_lookup(self, url: str, *, is_source: bool = False) -> None:
        """Raise Invalid for an address that is refused without a lookup; only sources may be our own route."""
        self._rules.require_allowed_url(url, is_own_open=is_source)

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        max_bytes: int,
        timeout_seconds: float,
        wait_beyond: WaitBeforeReadingBeyondSize | None = None,
    ) -> HttpResponse:
        """Send a GET and read the whole response; raises SourceFault."""
        async with self._exchange("GET", url, headers, None, timeout_seconds, max_bytes) as exchange:
            return await exchange.read(max_bytes, wait_beyond)

    async def post(
        self,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str] = NO_HEADERS,
        max_bytes: int,
        timeout_seconds: float,
    ) -> HttpResponse:
        """Send a POST and read the whole response; raises SourceFault."""
        async with self._exchange("POST", url, headers, body, timeout_seconds, max_bytes) as exchange:
            return await exchange.read(max_bytes)

    async def post_and_read_excerpt(
        self,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str] = NO_HEADERS,
        excerpt_bytes: int,
        timeout_seconds: float,
    ) -> HttpResponse:
        """Send a POST for the status of the response, and read an excerpt of its body; raises SourceFault."""
        async with self._exchange("POST", url, headers, body, timeout_seconds, excerpt_bytes) as exchange:
            return await exchange.read_excerpt(excerpt_bytes)

    @asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str] = NO_HEADERS, max_bytes: int, timeout_seconds: float
    ) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
        """Send a GET and yield the body piece by piece; the timeout covers what the caller does with the pieces."""
        async with self._exchange("GET", url, headers, None, timeout_seconds, max_bytes) as exchange:
            yield exchange.head, exchange.iterate_body(max_bytes)

    def open_socket_if_allowed(self, info: _SocketInfo) -> socket.socket:
        """Open a socket to an address that the rules allow; raise AddressDenied for another.

        Other clients whose addresses are given by users pass this function to their own transports.
        """
        family, kind, protocol, _, (address, port, *_) = info
        if not _is_own_api.get() and not self._rules.allows(egress.parse_address(str(address)), int(port)):
            log.get(__name__).warning("address_denied", address=address, port=port)
            raise AddressDenied(errno.EACCES, "refused by the egress rules")
        return socket.socket(family, kind, protocol)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_seconds: float,
        max_bytes: int,
    ) -> AsyncIterator[StreamedResponse]:
        target = self._require_allowed_target(url, is_own_open=method == "GET")
        # Read by open_socket_if_allowed, which aiohttp calls in the context of the request that needs a connection.
        # A kept connection is used again for its host and port alone, and at our own only this route is allowed.
        _is_own_api.set(self._rules.is_own_route(target))
        address = URL(target.url, encoded=bool(_QUOTED.fullmatch(target.rest)))
        with _raise_errors_as_faults(target, timeout_seconds, max_bytes):
            async with self._transport.exchange(method, address, headers, body, timeout_seconds) as exchange:
                yield exchange

    def _require_allowed_target(self, url: str, *, is_own_open: bool) -> egress.UrlParts:
        try:
            return self._rules.require_allowed_url(url, is_own_open=is_own_open)
        except Invalid as refusal:
            raise _convert_to_source_fault(refusal) from None


@contextmanager
def _raise_errors_as_faults(target: egress.UrlParts, timeout_seconds: float, max_bytes: int) -> Iterator[None]:
    try:
        yield
    except TransportError as error:
        log.get(__name__).info("request_failed", target=str(target), fault=error.fault, detail=error.detail)
        raise _build_fault(error, target, timeout_seconds, max_bytes) from None


def _build_fault(error: TransportError, target: egress.UrlParts, timeout_seconds: float, max_bytes: int) -> SourceFault:
    match error.fault:
        case TransportFailureKind.DENIED:
            return _convert_to_source_fault(
                egress.build_denied_fault(f"{target} leads to an address that is private, reserved or not open to us.")
            )
        case TransportFailureKind.CUT_OFF_IN_BODY:
            return SourceFault(
                "source_cut_off",
                f"{target} broke off in the middle of its answer, {error.detail}.",
                "Look into its log, and into those of the proxies before it.",
                transient=True,
            )
        case TransportFailureKind.TIMEOUT:
            return SourceFault(
                "source_timeout",
                f"{target} did not finish its answer within {timeout_seconds:g} seconds.",
                "Ask for less at a time (a smaller page_size or narrower filters), or make the source faster.",
                transient=True,
            )
        case TransportFailureKind.TOO_LARGE:
            return SourceFault(
                "source_too_large",
                f"{target} answered with more than the {max_bytes:,} bytes allowed.",
                "Ask for less at a time: a smaller page_size, fewer columns or a narrower filter.",
            )
        case TransportFailureKind.ENCODING:
            return SourceFault(
                "source_encoding",
                f"{target} answered in the encoding {error.detail}; only gzip or none was asked for.",
                "Let the source heed the header Accept-Encoding.",
            )
        case fault:
            sentence, hint = _UNREACHABLE[fault]
            message = sentence.format(target=target, host=target.host)
            return SourceFault("source_unreachable", message, hint, transient=True)


_UNREACHABLE: Final = {
    TransportFailureKind.NAME_UNKNOWN: (
        "The name {host} could not be resolved.",
        "Check its spelling and its DNS entry.",
    ),
    TransportFailureKind.NO_TLS: (
        "{target} offers no TLS with a certificate that we trust.",
        "Renew it, or use the name that it was made for.",
    ),
    TransportFailureKind.NO_CONNECTION: (
        "No connection to {target} could be made.",
        "Check that it runs and that its firewall lets us in.",
    ),
    TransportFailureKind.INVALID: (
        f"{{target}} did not answer in valid HTTP with headers of at most {HEADER_MAX_BYTES:,} bytes each.",
        "Open the address with curl and compare.",
    ),
    TransportFailureKind.CLOSED_BEFORE_BODY: (
        "{target} broke off before the body of its answer.",
        "Try again. If it happens again, look into its log, and into those of the proxies before it.",
    ),
}
"""Sentences and hints of faults before a response."""


def _convert_to_source_fault(refusal: Invalid) -> SourceFault:
    return SourceFault(refusal.record.code, refusal.record.message, refusal.record.hint)
