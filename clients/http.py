"""The guarded HTTP client: every request to an address that a user gave goes through it."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType, TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDictProxy
from yarl import URL

from clients.gunzip import DamagedGzip, Gunzip
from domain import egress
from domain.faults import Invalid, SourceFault
from infra import log
from infra.settings import GuardSettings

HEADERS_MAX_COUNT = 128
HEADER_MAX_BYTES = 8190
EXCERPT_SECONDS = 1.0
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

# A path and query in these characters goes out as it was written, because a source may have signed it.
_QUOTED = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")

_to_ours: ContextVar[bool] = ContextVar("to_ours", default=False)

_SocketInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class Threshold:
    """From how many bytes on a body may be read only after a wait, which takes nothing of the time it has."""

    bytes: int
    wait: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer(Head):
    """An answer with its body, decompressed. Redirects are answers like any other."""

    body: bytes


class GuardedClient:
    """Connects only where the egress rules allow, reads only as much and waits only as long as it is told.

    The rules are enforced where the socket is made: there the address is the one that is connected to, whatever a URL's
    spelling, a lying name server or a redirect made of it. Checks before that exist to give a clear sentence early.

    Args:
        own: Scheme, host and port of our own API, which is reached wherever its name leads.
    """

    _session: aiohttp.ClientSession

    def __init__(self, settings: GuardSettings, *, own: str = "", resolver: AbstractResolver | None = None) -> None:
        self._settings = settings
        self._rules = egress.EgressRules.parse(settings.allow, settings.ports, [own] if own else [])
        self._resolver = resolver

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._settings.pool_connections,
                resolver=self._resolver,
                socket_factory=self.open_socket,
            ),
            timeout=aiohttp.ClientTimeout(sock_connect=self._settings.connect_timeout_seconds),
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

    def check(self, url: str) -> None:
        """Refuse at the door what needs no lookup to be refused; raises Invalid."""
        self._rules.check(url)

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        max_bytes: int,
        timeout_seconds: float,
        threshold: Threshold | None = None,
    ) -> Answer:
        """Read a whole answer."""
        async with self._exchange("GET", url, headers, None, timeout_seconds) as exchange:
            return await exchange.answer(max_bytes, threshold)

    async def post(
        self,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str] = NO_HEADERS,
        excerpt_bytes: int,
        timeout_seconds: float,
    ) -> Answer:
        """Send a body. The head of the answer counts; of its body there is an excerpt, if one came at once."""
        async with self._exchange("POST", url, headers, body, timeout_seconds) as exchange:
            return await exchange.excerpt(excerpt_bytes)

    async def post_for_answer(
        self, url: str, *, body: bytes, headers: Mapping[str, str] = NO_HEADERS, max_bytes: int, timeout_seconds: float
    ) -> Answer:
        """Send a body and read the whole answer."""
        async with self._exchange("POST", url, headers, body, timeout_seconds) as exchange:
            return await exchange.answer(max_bytes)

    @asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str] = NO_HEADERS, max_bytes: int, timeout_seconds: float
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """Read an answer piece by piece; the deadline covers what the caller does with the pieces, too."""
        async with self._exchange("GET", url, headers, None, timeout_seconds) as exchange:
            yield exchange.head, exchange.chunks(max_bytes)

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_seconds: float
    ) -> AsyncIterator[_Exchange]:
        target = self._admitted(url)
        # A connection is made in the context of the request that waits for it, and kept for its host and port alone.
        _to_ours.set(self._rules.is_own(target))
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                with _told_as_faults(target):
                    response = await self._session.request(
                        method,
                        URL(target.url, encoded=bool(_QUOTED.fullmatch(target.rest))),
                        headers=headers,
                        data=body,
                        allow_redirects=False,
                    )
                try:
                    yield _Exchange(response, target, deadline)
                finally:
                    response.release()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise SourceFault(
                "source_timeout",
                f"{target} did not finish its answer within {timeout_seconds:g} seconds.",
                "Ask for less at a time (a smaller page_size or narrower filters), or make the source faster.",
                transient=True,
            ) from None

    def _admitted(self, url: str) -> egress.EgressTarget:
        try:
            return self._rules.check(url)
        except Invalid as refusal:
            raise _refused(refusal) from None

    def open_socket(self, info: _SocketInfo) -> socket.socket:
        """Make a socket for an address that the rules admit; for clients of others, too, whose addresses users give."""
        family, kind, protocol, _, (address, port, *_) = info
        if not _to_ours.get() and not self._rules.allows(egress.parse_address(str(address)), int(port)):
            log.get(__name__).warning("address_denied", address=address, port=port)
            raise _AddressRefused(errno.EACCES, "refused by the egress rules")
        return socket.socket(family, kind, protocol)


class _AddressRefused(PermissionError):
    """Always with the same text: of several refusals the connector then raises one as it is."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    response: aiohttp.ClientResponse
    target: egress.EgressTarget
    deadline: asyncio.Timeout

    @property
    def head(self) -> Head:
        return Head(self.response.status, self.response.headers)

    async def answer(self, max_bytes: int, threshold: Threshold | None = None) -> Answer:
        # What is written here is handed on without another copy.
        body = BytesIO()
        async for chunk in self.chunks(max_bytes):
            body.write(chunk)
            if threshold is not None and body.tell() > threshold.bytes:
                await self._out_of_time(threshold.wait)
                threshold = None
        return Answer(self.response.status, self.response.headers, body.getvalue())

    async def _out_of_time(self, wait: Callable[[], Awaitable[None]]) -> None:
        clock, until = asyncio.get_running_loop().time, self.deadline.when()
        began = clock()
        self.deadline.reschedule(None)
        await wait()
        if until is not None:
            self.deadline.reschedule(until + clock() - began)

    async def excerpt(self, max_bytes: int) -> Answer:
        """The beginning of the body: one that is long, slow, damaged or broken off takes nothing from the head."""
        body = bytearray()
        with suppress(SourceFault, TimeoutError):
            async with asyncio.timeout(EXCERPT_SECONDS):
                async for piece in self._pieces():
                    body += piece
                    if len(body) >= max_bytes:
                        break
        return Answer(self.response.status, self.response.headers, bytes(body[:max_bytes]))

    async def chunks(self, max_bytes: int) -> AsyncIterator[bytes]:
        """The body as it comes, inflated."""
        announced = self.response.content_length or 0
        if announced > max_bytes and "Content-Encoding" not in self.response.headers:
            raise self._too_large(max_bytes)
        received = 0
        async for piece in self._pieces():
            received += len(piece)
            if received > max_bytes:
                raise self._too_large(max_bytes)
            yield piece

    def _pieces(self) -> AsyncIterator[bytes]:
        match self.response.headers.get("Content-Encoding", "").lower():
            case "" | "identity":
                return self._wire()
            case "gzip" | "x-gzip":
                return self._inflated()
            case other:
                raise SourceFault(
                    "source_encoding",
                    f"{self.target} answered in the encoding {other[:40]!r}; only gzip or none was asked for.",
                    "Let the source heed the header Accept-Encoding.",
                )

    async def _wire(self) -> AsyncIterator[bytes]:
        received = 0
        try:
            with _told_as_faults(self.target):
                while chunk := await self.response.content.readany():
                    received += len(chunk)
                    yield chunk
        except SourceFault as fault:
            if received and fault.record.code == "source_unreachable":
                raise _cut_off(self.target, f"after {received:,} bytes of it") from None
            raise

    async def _inflated(self) -> AsyncIterator[bytes]:
        gunzip, received = Gunzip(), 0
        try:
            async for chunk in self._wire():
                received += len(chunk)
                for piece in gunzip.feed(chunk):
                    yield piece
            gunzip.finish()
        except DamagedGzip:
            raise _cut_off(self.target, f"after {received:,} bytes of it, or packed it wrongly") from None

    def _too_large(self, max_bytes: int) -> SourceFault:
        return SourceFault(
            "source_too_large",
            f"{self.target} answered with more than the {max_bytes:,} bytes allowed.",
            "Ask for less at a time: a smaller page_size, fewer columns or a narrower filter.",
        )


@contextmanager
def _told_as_faults(target: egress.EgressTarget) -> Iterator[None]:
    # No cause is kept: its text holds addresses that a name resolved to.
    try:
        yield
    except aiohttp.ClientError as error:
        log.get(__name__).info("request_failed", target=str(target), error=type(error).__name__)
        raise _fault(error, target) from None


def _fault(error: aiohttp.ClientError, target: egress.EgressTarget) -> SourceFault:
    match error:
        case aiohttp.ClientConnectorError(os_error=_AddressRefused()):
            return _refused(
                egress.build_denied_fault(f"{target} leads to an address that is private, reserved or not open to us.")
            )
        case aiohttp.ClientConnectorDNSError():
            return _unreachable(
                f"The name {target.host} could not be resolved.", "Check its spelling and its DNS entry."
            )
        case aiohttp.ClientSSLError():
            return _unreachable(
                f"{target} offers no TLS with a certificate that we trust.",
                "Renew it, or use the name that it was made for.",
            )
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return _unreachable(
                f"No connection to {target} could be made.", "Check that it runs and that its firewall lets us in."
            )
        case aiohttp.ClientResponseError():
            return _unreachable(
                f"{target} did not answer in valid HTTP with headers of at most {HEADER_MAX_BYTES:,} bytes each.",
                "Open the address with curl and compare.",
            )
        case _:
            return _broken_off(target)


def _broken_off(target: egress.EgressTarget) -> SourceFault:
    return _unreachable(
        f"{target} broke off in the middle of its answer, or sent it damaged.",
        "Try again; if it stays so, look into its log.",
    )


def _cut_off(target: egress.EgressTarget, where: str) -> SourceFault:
    return SourceFault(
        "source_cut_off",
        f"{target} broke off in the middle of its answer, {where}.",
        "Look into its log, and into that of what stands between it and us.",
        transient=True,
    )


def _refused(refusal: Invalid) -> SourceFault:
    return SourceFault(refusal.record.code, refusal.record.message, refusal.record.hint)


def _unreachable(message: str, hint: str) -> SourceFault:
    return SourceFault("source_unreachable", message, hint, transient=True)
