"""The HTTP transport: the one place that opens sessions and reads response bodies, within limits of size and time."""

from __future__ import annotations

import asyncio
import math
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDictProxy
from yarl import URL

from infra import tracing

HEADERS_MAX_COUNT: Final = 128
HEADER_MAX_BYTES: Final = 8190
EXCERPT_SECONDS: Final = 1.0
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

OpenSocket: TypeAlias = Callable[[Any], socket.socket]


class TransportFailureKind(StrEnum):
    """Why a request got no whole response."""

    DENIED = "denied"  # by the function that opens sockets
    NAME_UNKNOWN = "name_unknown"
    NO_TLS = "no_tls"
    NO_CONNECTION = "no_connection"
    INVALID = "invalid"  # no HTTP, or headers beyond the limits
    CLOSED_BEFORE_BODY = "closed_before_body"
    CUT_OFF_IN_BODY = "cut_off_in_body"  # or what came of it is damaged
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    ENCODING = "encoding"  # one that was not asked for


_BEFORE_SENDING: Final = frozenset(
    {
        TransportFailureKind.DENIED,
        TransportFailureKind.NAME_UNKNOWN,
        TransportFailureKind.NO_TLS,
        TransportFailureKind.NO_CONNECTION,
    }
)


class TransportError(Exception):
    """A request got no whole response.

    Args:
        fault: Why.
        detail: The class of the error, the encoding, or whatever else names the case; it holds no address.
    """

    def __init__(self, fault: TransportFailureKind, detail: str = "") -> None:
        super().__init__(f"{fault} ({detail})" if detail else str(fault))
        self.fault = fault
        self.detail = detail

    @property
    def is_surely_unsent(self) -> bool:
        """Whether the request surely did not reach the server."""
        return self.fault in _BEFORE_SENDING


class AddressDenied(PermissionError):
    """Raised where sockets are opened; always with one text, so that the connector raises several as one."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status and headers of a response."""

    status: int
    headers: CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class HttpResponse(ResponseHead):
    """A response with its body, decompressed. Redirects are responses like any other."""

    body: bytes


@dataclass(frozen=True, slots=True)
class WaitBeforeReadingBeyondSize:
    """A size from which a body is read on only after a wait, which does not count against the timeout.

    Args:
        until: When the timeout ends at the latest however long the wait was, by the clock of the event loop.
    """

    bytes: int
    wait: Callable[[], Awaitable[None]]
    until: float = math.inf


class HttpTransport:
    """A session without cookies, proxies and redirects.

    Args:
        connections: Connections at a time; 0 for no limit.
        keeps_connections: Whether connections are used again. On a kept connection, one that the server has closed
            meanwhile looks like a request that it has begun to carry out.
        open_socket_if_allowed: Opens the socket of a connection, or raises AddressDenied.
    """

    _session: aiohttp.ClientSession

    def __init__(
        self,
        *,
        connect_timeout_seconds: float,
        connections: int = 0,
        keeps_connections: bool = True,
        open_socket_if_allowed: OpenSocket | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._connections = connections
        self._keeps_connections = keeps_connections
        self._open_socket = open_socket_if_allowed
        self._resolver = resolver

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                force_close=not self._keeps_connections,
                resolver=self._resolver,
                socket_factory=self._open_socket,
            ),
            timeout=aiohttp.ClientTimeout(sock_connect=self._connect_timeout_seconds),
            headers={"User-Agent": "Haulage", "Accept-Encoding": "gzip"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            max_line_size=HEADER_MAX_BYTES,
            max_field_size=HEADER_MAX_BYTES,
            max_headers=HEADERS_MAX_COUNT,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes | None = None,
        max_bytes: int,
        timeout_seconds: float,
    ) -> HttpResponse:
        """Send a request and read the whole response; raises TransportError."""
        async with self.exchange(method, url, headers, body, timeout_seconds) as exchange:
            return await exchange.read(max_bytes)

    @asynccontextmanager
    async def exchange(
        self, method: str, url: str | URL, headers: Mapping[str, str], body: bytes | None, timeout_seconds: float
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request and yield its response before the body; the timeout covers the block as well."""
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                with tracing.trace_call(method, url), _raise_aiohttp_client_error_as_transport_error():
                    response = await self._session.request(
                        method, url, headers=headers, data=body, allow_redirects=False
                    )
                try:
                    yield StreamedResponse(response, deadline)
                finally:
                    response.release()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise TransportError(TransportFailureKind.TIMEOUT, f"{timeout_seconds:g} s") from None


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """A response whose body has not been read yet."""

    response: aiohttp.ClientResponse
    deadline: asyncio.Timeout

    @property
    def head(self) -> ResponseHead:
        """The status and headers."""
        return ResponseHead(self.response.status, self.response.headers)

    async def read(self, max_bytes: int, wait_beyond: WaitBeforeReadingBeyondSize | None = None) -> HttpResponse:
        """Read the whole body."""
        # A BytesIO returns its content without another copy.
        body = BytesIO()
        async for chunk in self.iterate_body(max_bytes):
            body.write(chunk)
            if wait_beyond is not None and body.tell() > wait_beyond.bytes:
                await self._wait_without_using_timeout(wait_beyond)
                wait_beyond = None
        return HttpResponse(self.response.status, self.response.headers, body.getvalue())

    async def read_excerpt(self, max_bytes: int) -> HttpResponse:
        """Read the beginning of the body; a long, slow, damaged or broken body does not spoil the head."""
        body = bytearray()
        if not self.deadline.expired():
            self.deadline.reschedule(None)
        with suppress(TransportError, TimeoutError):
            async with asyncio.timeout(EXCERPT_SECONDS):
                async for piece in self._iterate_decompressed():
                    body += piece
                    if len(body) >= max_bytes:
                        break
        return HttpResponse(self.response.status, self.response.headers, bytes(body[:max_bytes]))

    async def iterate_body(self, max_bytes: int) -> AsyncIterator[bytes]:
        """Yield the decompressed body as it arrives."""
        announced = self.response.content_length or 0
        if announced > max_bytes and "Content-Encoding" not in self.response.headers:
            raise TransportError(TransportFailureKind.TOO_LARGE, f"{max_bytes:,} bytes")
        received = 0
        async for piece in self._iterate_decompressed():
            received += len(piece)
            if received > max_bytes:
                raise TransportError(TransportFailureKind.TOO_LARGE, f"{max_bytes:,} bytes")
            yield piece

    async def _wait_without_using_timeout(self, wait_beyond: WaitBeforeReadingBeyondSize) -> None:
        clock, until = asyncio.get_running_loop().time, self.deadline.when()
        began = clock()
        self.deadline.reschedule(None)
        await wait_beyond.wait()
        if until is not None:
            self.deadline.reschedule(min(until + clock() - began, wait_beyond.until))

    def _iterate_decompressed(self) -> AsyncIterator[bytes]:
        match self.response.headers.get("Content-Encoding", "").lower():
            case "" | "identity":
                return self._iterate_raw()
            case "gzip" | "x-gzip":
                return self._iterate_gunzipped()
            case other:
                raise TransportError(TransportFailureKind.ENCODING, repr(other[:40]))

    async def _iterate_raw(self) -> AsyncIterator[bytes]:
        received = 0
        try:
            with _raise_aiohttp_client_error_as_transport_error():
                while chunk := await self.response.content.readany():
                    received += len(chunk)
                    yield chunk
        except TransportError as error:
            if received and error.fault is not TransportFailureKind.CUT_OFF_IN_BODY:
                raise TransportError(TransportFailureKind.CUT_OFF_IN_BODY, f"after {received:,} bytes of it") from None
            raise

    async def _iterate_gunzipped(self) -> AsyncIterator[bytes]:
        gunzip, received = GzipDecompressor(), 0
        try:
            async for chunk in self._iterate_raw():
                received += len(chunk)
                for piece in gunzip.decompress(chunk):
                    yield piece
            gunzip.raise_if_stream_ended_early()
        except InvalidGzip:
            detail = f"after {received:,} bytes of it, or packed it wrongly"
            raise TransportError(TransportFailureKind.CUT_OFF_IN_BODY, detail) from None


@contextmanager
def _raise_aiohttp_client_error_as_transport_error() -> Iterator[None]:
    # No cause is kept: its text holds addresses that a name resolved to.
    try:
        yield
    except aiohttp.ClientError as error:
        raise TransportError(_classify_error(error), type(error).__name__) from None


def _classify_error(error: aiohttp.ClientError) -> TransportFailureKind:
    match error:
        case aiohttp.ClientConnectorError(os_error=AddressDenied()):
            return TransportFailureKind.DENIED
        case aiohttp.ClientConnectorDNSError():
            return TransportFailureKind.NAME_UNKNOWN
        case aiohttp.ClientSSLError():
            return TransportFailureKind.NO_TLS
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return TransportFailureKind.NO_CONNECTION
        case aiohttp.ClientResponseError():
            return TransportFailureKind.INVALID
        case _:
            return TransportFailureKind.CLOSED_BEFORE_BODY


PIECE_BYTES = 1024 * 1024
WIRE_SLICE_BYTES = 64 * 1024
MEMBERS_MAX = 1_000
_GZIP = 16 + zlib.MAX_WBITS


class InvalidGzip(Exception):
    """The bytes are no gzip, are incomplete, or are cut into absurdly many members."""


class GzipDecompressor:
    """One body: feed it what arrives, then ask whether it was all."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP)
        self._members = 0

    def decompress(self, wire: bytes) -> Iterator[bytes]:
        """Inflate some bytes, into pieces that stay small whatever a bomb would make of them."""
        # By slices, because each end of a member copies all that follows it.
        for start in range(0, len(wire), WIRE_SLICE_BYTES):
            yield from self._decompress_slice(wire[start : start + WIRE_SLICE_BYTES])

    def _decompress_slice(self, rest: bytes) -> Iterator[bytes]:
        full = False
        # A full piece may have left more in the inflater, even when all input is consumed.
        while rest or full:
            if self._members == 0 or self._inflater.eof:
                self._begin_member_up_to_max()
            try:
                piece = self._inflater.decompress(rest, PIECE_BYTES)
            except zlib.error:
                raise InvalidGzip from None
            if piece:
                yield piece
            full = len(piece) == PIECE_BYTES and not self._inflater.eof
            rest = self._inflater.unconsumed_tail or self._inflater.unused_data

    def raise_if_stream_ended_early(self) -> None:
        """Say that nothing more comes; InvalidGzip when that is too early. Nothing at all is an empty body."""
        if self._members and not self._inflater.eof:
            raise InvalidGzip

    def _begin_member_up_to_max(self) -> None:
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise InvalidGzip
        self._inflater = zlib.decompressobj(_GZIP)
