"""JSON responses: sent in one piece where their head is the usual one, with the headers that aiohttp would send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from api.http import middleware, server
from api.http.deadlines import DeadlineQueue
from api.http.middleware import JsonResponse
from api.http.routes import REQUEST_STATE
from infra.settings import ApiSettings

BODY = '{"name":"Zoë"}'.encode()


async def answer(request: web.Request) -> web.Response:
    """Answer with JSON, with a header more where the query asks for it."""
    assert middleware.DEADLINES in request.app
    if "more" in request.query:
        request[REQUEST_STATE].headers["Retry-After"] = "7"
    return JsonResponse(201, BODY)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Serve one route."""
    app = web.Application()
    app[middleware.DEADLINES] = DeadlineQueue(30.0)
    app.on_response_prepare.append(middleware.set_response_headers)
    app.router.add_get("/toy", answer)
    async with server.open_server(app, ApiSettings(port=0)) as (address, *_):
        yield address


async def ask(address: str, *lines: str, sends_body: bool = True) -> tuple[str, Mapping[str, str], bytes]:
    """Send a request; return status line, headers and body."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write("".join(f"{line}\r\n" for line in (*lines, "Host: toys", "X-Request-Id: toy-request", "")).encode())
    status, *head = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head)
    body = await reader.readexactly(int(headers["Content-Length"])) if sends_body else b""
    writer.close()
    return status, headers, body


async def test_a_response_in_one_piece_has_the_headers_of_any_other(address: str) -> None:
    """Nothing is missing beside one that aiohttp wrote, and nothing says so."""
    status, headers, body = await ask(address, "GET /toy HTTP/1.1")
    other_status, other_headers, other_body = await ask(address, "GET /toy HTTP/1.1", "Connection: close")

    assert (status, body) == (other_status, other_body) == ("HTTP/1.1 201 Created", BODY)
    assert other_headers == {**headers, "Connection": "close", "Date": other_headers["Date"]}
    assert headers["X-Request-Id"] == "toy-request"
    assert (headers["Content-Type"], headers["Content-Length"]) == ("application/json", str(len(BODY)))


@pytest.mark.parametrize(
    ("line", "changed", "sent"),
    [
        ("GET /toy?more HTTP/1.1", {"Retry-After": "7"}, BODY),
        ("HEAD /toy HTTP/1.1", {}, b""),
        ("GET /toy HTTP/1.0", {}, BODY),
    ],
)
async def test_what_needs_another_head_gets_it(
    address: str, line: str, changed: Mapping[str, str], sent: bytes
) -> None:
    """Headers of the handler, a request for the head alone, and a caller of HTTP/1.0."""
    _, headers, body = await ask(address, line, sends_body=bool(sent))

    assert body == sent
    assert changed.items() <= headers.items()
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("path", ["/toy", "/toy?", "/toy?less", "/t%6Fy"])
async def test_a_path_may_be_written_in_several_ways(address: str, path: str) -> None:
    """Looked up in the table or searched for, it is the same route."""
    status, _, body = await ask(address, f"GET {path} HTTP/1.1")

    assert (status, body) == ("HTTP/1.1 201 Created", BODY)


async def test_both_requests_of_a_connection_are_answered(address: str) -> None:
    """The connection stays open after a response in one piece."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for _ in range(2):
        writer.write(b"GET /toy HTTP/1.1\r\nHost: toys\r\n\r\n")
        assert (await reader.readuntil(BODY)).startswith(b"HTTP/1.1 201 Created\r\n")
    writer.close()


async def test_what_else_sets_headers_of_an_application_is_heeded() -> None:
    """As the codec of payloads does for pages of the engine's Web UI."""

    async def add_header(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Vary"] = "Origin"

    app = web.Application()
    app[middleware.DEADLINES] = DeadlineQueue(30.0)
    app.on_response_prepare.extend([middleware.set_response_headers, add_header])
    app.router.add_get("/toy", answer)
    async with server.open_server(app, ApiSettings(port=0)) as (address, *_):
        _, headers, body = await ask(address, "GET /toy HTTP/1.1")

    assert (headers["Vary"], headers["X-Request-Id"], body) == ("Origin", "toy-request", BODY)
