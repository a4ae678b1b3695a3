"""What the API does with callers that are slow, idle, too large or not speaking HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest
from pydantic import Field

from api.http.models import Request, Response
from api.http.routes import Call, RouteAccess, Routes
from infra.settings import Settings
from tests.support.api import ApiClient, running_api
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.stack

LATE_SECONDS = 20.0
"""Much more than any limit here, on a busy machine too, and less than a request without a limit would take."""
DRAINED_SECONDS = 0.2
"""How long a caller goes on sending after it was refused."""

toys = Routes("toys", "Routes that need no key, to be slow with.")


class Text(Request):
    """Some text."""

    text: str = Field(max_length=10_000)


class Length(Response):
    """How long it was."""

    length: int


@toys.post("/toys", access=RouteAccess.PUBLIC)
async def measure(_call: Call, body: Text) -> Length:
    """Measure a text."""
    return Length(length=len(body.text))


@toys.get("/toys/slow", access=RouteAccess.PUBLIC)
async def slow(_call: Call) -> Length:
    """Take longer than any caller waits."""
    await asyncio.Event().wait()
    raise AssertionError("that event is never set")


@pytest.fixture(scope="module")
async def api_client(shared_settings: Settings) -> AsyncIterator[ApiClient]:
    """The toys, with limits short enough to meet, one API for all tests of this file."""
    async with running_api(
        shared_settings,
        [toys],
        body_max_bytes=1_000,
        body_timeout_seconds=1.0,
        request_timeout_seconds=3.0,
        keepalive_seconds=1.0,
    ) as api_client:
        yield api_client


async def exchange(api_client: ApiClient, *pieces: bytes, pause_seconds: float = 0.0) -> tuple[bytes, float]:
    """Send raw bytes piece by piece; return what came back until the server closed, and after how long."""
    started = time.monotonic()
    reader, writer = await asyncio.open_connection(*api_client.host_and_port)
    received = asyncio.create_task(reader.read())
    for piece in pieces:
        if received.done():
            break
        writer.write(piece)
        await asyncio.wait({received}, timeout=pause_seconds)
    answer = await asyncio.wait_for(received, PATIENCE_SECONDS)
    writer.close()
    return answer, time.monotonic() - started


def head(length: int) -> bytes:
    """The head of a POST that promises a body."""
    return (
        f"POST /toys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()
    )


async def test_a_body_that_drips_gets_408(api_client: ApiClient) -> None:
    """The whole body has one deadline; a byte now and then does not extend it."""
    drops = [bytes([character]) for character in b'{"text": "' + b"x" * 60]
    answer, seconds = await exchange(api_client, head(500), *drops, pause_seconds=0.05)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_timeout"' in answer
    assert 1.0 <= seconds < LATE_SECONDS


async def test_a_refusal_reaches_a_caller_that_goes_on_sending(api_client: ApiClient) -> None:
    """The answer and the end of the connection come at once; what is still sent is drained before both sides close."""
    reader, writer = await asyncio.open_connection(*api_client.host_and_port)
    writer.write(head(1_000))

    async def drip() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    dripping = asyncio.create_task(drip())
    try:
        answer = await asyncio.wait_for(reader.read(), LATE_SECONDS)
        # After the end of the answer, what is sent is taken and no reset comes, which could overtake an answer.
        await asyncio.sleep(DRAINED_SECONDS)
        assert not writer.transport.is_closing(), "the connection was reset"
        assert not dripping.done(), "the caller was still sending"
    finally:
        dripping.cancel()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nConnection: close\r\n" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "body_timeout"


async def test_a_body_that_stops_gets_408_and_the_connection_ends(api_client: ApiClient) -> None:
    """A promised body that never comes does not hold a connection."""
    answer, seconds = await exchange(api_client, head(500))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert seconds < LATE_SECONDS


async def test_an_idle_connection_is_closed(api_client: ApiClient) -> None:
    """A connection on which nothing is said ends after the keep-alive time."""
    answer, seconds = await exchange(api_client)
    assert answer == b""
    assert 0.9 <= seconds < LATE_SECONDS


async def test_an_idle_connection_is_closed_after_an_answer_too(api_client: ApiClient) -> None:
    """Keep-alive ends when no further request comes."""
    body = b'{"text": "ab"}'
    answer, seconds = await exchange(api_client, head(len(body)) + body)
    assert answer.endswith(b'{"length":2}')
    assert 0.9 <= seconds < LATE_SECONDS


async def test_headers_that_drip_end_the_connection(api_client: ApiClient) -> None:
    """Half a request head is idle too."""
    started = time.monotonic()
    pieces = [b"GET /toys/slow HTTP/1.1\r\n"] + [b"A: b\r\n"] * 40
    # A piece that crosses the end of the connection is answered by a reset: there was no answer that it could lose.
    with suppress(ConnectionResetError):
        answer, _ = await exchange(api_client, *pieces, pause_seconds=0.05)
        assert answer == b""
    assert time.monotonic() - started < LATE_SECONDS


async def test_a_declared_body_too_large_is_refused_unread(api_client: ApiClient) -> None:
    """The promise alone is enough for a 413."""
    reply = await api_client.ask("POST", "/toys", json={"text": "x" * 2_000})
    assert (reply.status, reply.code) == (413, "body_too_large")
    assert "1,000 bytes" in reply.body["detail"]


async def test_a_streamed_body_too_large_is_refused(api_client: ApiClient) -> None:
    """A body without a declared length is counted while it is read."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    reply = await api_client.ask("POST", "/toys", data=pieces(), headers={"Content-Type": "application/json"})
    assert (reply.status, reply.code) == (413, "body_too_large")


@pytest.mark.parametrize(("length", "status"), [(1_001, b"413"), (2, b"100")])
async def test_a_body_too_large_is_refused_before_it_is_sent(api_client: ApiClient, length: int, status: bytes) -> None:
    """A caller that asks first, with `Expect: 100-continue`, need not send it."""
    reader, writer = await asyncio.open_connection(*api_client.host_and_port)
    head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    writer.write(f"POST /toys HTTP/1.1\r\n{head}".encode())
    async with asyncio.timeout(LATE_SECONDS):
        line = await reader.readline()
    writer.close()
    assert line.split()[1] == status


async def test_a_request_that_takes_too_long_gets_503(api_client: ApiClient) -> None:
    """Our own slowness has an end, and the answer says to try again."""
    reply = await api_client.ask("GET", "/toys/slow")
    assert (reply.status, reply.code) == (503, "unavailable")
    assert int(reply.headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST /toys HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /toys HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_what_is_not_http_gets_a_problem_and_nothing_of_the_server(api_client: ApiClient, raw: bytes) -> None:
    """Even an answer to noise is a problem with a request id, and does not say which server wrote it."""
    answer, _ = await exchange(api_client, raw)
    header, _, body = answer.partition(b"\r\n\r\n")
    assert header.split(b" ", 2)[1] == b"400"
    assert json.loads(body)["code"] == "malformed_request"
    assert b"\r\nserver:" not in header.lower()
    assert b"nosniff" in header


@pytest.mark.parametrize(("pause_seconds", "status"), [(0.0, b"400"), (0.5, b"408")])
async def test_a_broken_chunk_is_answered(api_client: ApiClient, pause_seconds: float, status: bytes) -> None:
    """A body whose framing breaks is refused; where it breaks later, at the deadline, as the rest never comes."""
    start = b"POST /toys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"zz\r\nnot a chunk\r\n"
    pieces = [start, chunk] if pause_seconds else [start + chunk]
    answer, _ = await exchange(api_client, *pieces, pause_seconds=pause_seconds)
    assert answer.split(b" ", 2)[1] == status
    assert b"application/problem+json" in answer


async def test_a_body_too_large_that_comes_at_once_is_refused(api_client: ApiClient) -> None:
    """In one piece with its head and without a length: it has arrived before it can be stopped, and is refused."""
    start = b"POST /toys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"text": "' + b"a" * 1_200 + b'"}'
    answer, _ = await exchange(api_client, start + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert answer.split(b" ", 2)[1] == b"413"
    assert b"body_too_large" in answer


async def test_dripping_callers_do_not_slow_down_others(api_client: ApiClient) -> None:
    """A hundred connections that drip cost the next caller nothing."""
    drips = [asyncio.create_task(exchange(api_client, head(500))) for _ in range(100)]
    await asyncio.wait(drips, timeout=0.1)
    started = time.monotonic()
    reply = await api_client.ask("POST", "/toys", json={"text": "abc"})
    seconds = time.monotonic() - started
    answers = [answer for answer, _ in await asyncio.gather(*drips)]
    assert reply.body == {"length": 3}
    assert seconds < LATE_SECONDS
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers)


async def test_requests_under_way_finish_when_the_server_stops(settings: Settings) -> None:
    """A deployment interrupts no request: it is answered before the server stops."""
    gate = asyncio.Event()
    entered = asyncio.Event()
    routes = Routes("gate", "One route that waits.")

    @routes.get("/gate", access=RouteAccess.PUBLIC)
    async def wait(_call: Call) -> Length:
        """Wait for the gate."""
        entered.set()
        await gate.wait()
        return Length(length=1)

    async with aiohttp.ClientSession() as session:
        async with running_api(settings, [routes]) as api_client:
            pending = asyncio.create_task(session.get(f"{api_client.address}/gate"))
            await entered.wait()
            asyncio.get_running_loop().call_later(0.2, gate.set)
        answer = await pending
        assert await answer.json() == {"length": 1}
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{api_client.address}/gate")
