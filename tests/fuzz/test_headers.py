"""Odd headers and cookies, as bytes on a socket: no library between would refuse to send them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from api import app
from api.http.routes import Route
from api.http.sessions import COOKIE_NAME
from domain.secrets import ApiKeyText
from infra.outages import Component
from systems import SYSTEMS
from tests.support.api import PROBLEM_MEMBERS, ApiClient
from tests.support.pace import measure_pace
from tests.support.reporting import FUZZED

pytestmark = pytest.mark.stack

REQUESTS = int(os.environ.get("FUZZ_HEADERS", "300"))
"""How many requests are sent; `make fuzz` sends many more."""
ANSWER_SECONDS = 30.0
KINDS = ("no UTF-8", "very long", "repeated", "wrong Authorization", "odd cookie", "damaged", "noise", "plausible")
"""What is odd about a request; each kind comes in every run."""
PARTS = (*Component, *SYSTEMS, "component")
BODIES = (b"", b"", b"{}", b"[]", b"\xff\xfe", b'{"file_name": "a"}')
PLAUSIBLE = {
    b"Accept": [b"*/*", b"text/event-stream", b"application/json;q=x", b"text/html"],
    b"Accept-Encoding": [b"gzip, br;q=0", b"*;q=2", b""],
    b"Accept-Language": [b"zh-CN,zh;q=0.9", b"*"],
    b"Content-Encoding": [b"gzip", b"deflate", b"br", b"x"],
    b"Content-Type": [b"application/json", b"application/json; charset=latin-9", b"text/plain", b"multipart/form-data"],
    b"Expect": [b"100-continue", b"200-ok"],
    b"Haulage-Console": [b"1", b"0"],
    b"Haulage-Project": [b"prj_0123456789abcdef", b"PROJECT", b"", b"*"],
    b"Idempotency-Key": [b"order-1", b"", b" ", b"'; --"],
    b"If-Match": [b'"a"', b"*"],
    b"If-Modified-Since": [b"Wed, 21 Oct 2015 07:28:00 GMT", b"yesterday", b"Wed, 99 Oct 99999 07:28:00 GMT"],
    b"If-None-Match": [b'W/"a", "b"', b"*", b'"'],
    b"Last-Event-ID": [b"1", b"-1", b"9" * 40],
    b"Origin": [b"null", b"http://[::1", b"https://example.com", b"http://x:99999"],
    b"Range": [b"bytes=0-0", b"bytes=-1", b"bytes=9-1,1-9", b"rows=1"],
    b"Sec-Fetch-Site": [b"same-origin", b"cross-site"],
    b"Sec-WebSocket-Key": [b"dGhlIHNhbXBsZSBub25jZQ==", b"?"],
    b"Sec-WebSocket-Version": [b"13", b"x"],
    b"Upgrade": [b"websocket", b"h2c"],
    b"X-Forwarded-Proto": [b"https", b"gopher"],
    b"X-HTTP-Method-Override": [b"DELETE"],
    b"X-Request-Id": [b"abcdefgh", b"a", b"a" * 65, b"abc def gh"],
    b"traceparent": [b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"00-0-0-0", b"ff"],
    b"tracestate": [b"a=b", b"=,=,="],
}
FRAMING = {
    b"Content-Length": [b"-1", b"x", b"0x2", b"1 1", b"+2", b"\xb2", b"9" * 30],
    b"Transfer-Encoding": [b"gzip", b"chunked, identity", b"\x0bchunked", b"chunked, x"],
    b"Host": [b"", b"a b", b"[", b"\xff", b"x" * 300, b"a:b:c"],
}
"""Headers that say where a request ends, always wrong: a body that never comes would only be waited for."""


@dataclass(frozen=True)
class Answer:
    """An answer, as it was read from the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    def check(self, route: Route | None) -> None:
        """No 500; an error is a problem, of the routes of tasks an envelope; a 503 says which part and when to ask."""
        assert self.status != 500
        assert "x-request-id" in self.headers or self.status < 400
        if route and route.method == "HEAD":
            return
        if self.status >= 400:
            assert self.headers["content-type"].startswith("application/problem+json")
            problem = json.loads(self.body)
            assert problem.keys() - {"violated-policies"} == PROBLEM_MEMBERS
            assert (problem["status"], problem["request_id"]) == (self.status, self.headers["x-request-id"])
            assert problem["code"]
            assert problem["detail"]
            self._check_outage(problem["detail"])
        elif route and route.tag == "tasks" and self.headers["content-type"].startswith("application/json"):
            envelope = json.loads(self.body)
            assert isinstance(envelope["code"], int)

    def _check_outage(self, detail: str) -> None:
        if self.status == 503:
            assert int(self.headers["retry-after"]) >= 1
            assert any(str(part) in detail for part in PARTS), detail


class OddRequests:
    """Draws requests to every route, each with odd headers."""

    def __init__(self, draw: random.Random, keys: list[bytes], cookies: list[bytes]) -> None:
        self._draw = draw
        self._keys = keys
        self._cookies = cookies
        self._routes = [route for group in app.ROUTE_GROUPS for route in group]
        self.kinds: Counter[str] = Counter()

    def draw_request(self) -> tuple[Route, bytes]:
        """Return a request, and its route."""
        route, kind = self._draw.choice(self._routes), self._draw.choice(KINDS)
        self.kinds[kind] += 1
        path = route.path
        for variable in route.path_model.model_fields if route.path_model else ():
            value = self._draw.choice(["0123456789ab", "prj_0123456789abcdef", "%00", "%ff", "..", "*", "a%2Fb"])
            path = path.replace(f"{{{variable}}}", value)
        headers = [(b"Connection", b"close"), *self._draw_headers(kind)]
        body = self._draw.choice(BODIES)
        if not any(name in FRAMING for name, _ in headers):
            headers.append((b"Content-Length", str(len(body)).encode()))
        if not any(name == b"Host" for name, _ in headers):
            headers.insert(0, (b"Host", b"localhost"))
        lines = [f"{route.method} {path} HTTP/1.1".encode(), *(name + b": " + value for name, value in headers)]
        return route, b"\r\n".join(lines) + b"\r\n\r\n" + body

    def _draw_headers(self, kind: str) -> Iterator[tuple[bytes, bytes]]:
        if kind != "wrong Authorization" and self._draw.random() < 0.7:
            yield b"Authorization", b"Bearer " + self._draw.choice(self._keys)
        name, value = self._draw_plausible()
        yield from self._draw_oddity(kind, name, value)
        for _ in range(self._draw.choice([0, 0, 1, 3])):
            yield self._draw_plausible()

    def _draw_oddity(self, kind: str, name: bytes, value: bytes) -> Iterator[tuple[bytes, bytes]]:
        choose = self._draw.choice
        match kind:
            case "no UTF-8":
                yield name, value + choose([b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\x80abc", b"\xf5\x80\x80"])
            case "very long":
                yield name, value + b"x" * choose([1_000, 8_000, 8_190, 9_000, 70_000])
            case "repeated":
                yield from ((name, choose([value, self._draw_noise()])) for _ in range(choose([2, 3, 20, 150])))
            case "wrong Authorization":
                yield from ((b"Authorization", self._draw_credentials()) for _ in range(choose([1, 1, 1, 2])))
            case "odd cookie":
                yield from ((b"Cookie", self._draw_cookies()) for _ in range(choose([1, 1, 1, 2])))
            case "damaged":
                name, values = choose(list(FRAMING.items()))
                yield name, choose(values)
            case "noise":
                yield choose([name, self._draw_noise(), b"X" * 300, b""]), self._draw_noise()
            case _:
                yield name, value

    def _draw_plausible(self) -> tuple[bytes, bytes]:
        name = self._draw.choice([b"Cookie", *PLAUSIBLE])
        return name, self._draw_cookies() if name == b"Cookie" else self._draw.choice(PLAUSIBLE[name])

    def _draw_credentials(self) -> bytes:
        key = self._draw.choice([*self._keys, ApiKeyText("0123456789ab", "a" * 32).text.encode(), b"hlg_", b""])
        key = self._draw.choice([key, self._damage(key), key + b" " + key])
        basic = base64.b64encode(self._draw.choice([b":" + key, key, b"\xff:\xfe", b"a:b:c"]))
        scheme = self._draw.choice([b"Bearer", b"bearer", b"Basic", b"Negotiate", b"\xffearer", b"Bearer\t", b""])
        return scheme + b" " + (basic if scheme == b"Basic" else key)

    def _draw_cookies(self) -> bytes:
        name = COOKIE_NAME.encode()
        session = self._draw.choice(self._cookies)
        others = [b"$Version=1", b"a", b"=", b"a=b=c", b'x="\\"', b"\xff=\xfe", b"__Host-a=1", b"a;b;;", b"a=\x01"]
        cookies = [name + b"=" + self._draw.choice([session, self._damage(session), b"", b"gAAAAA", b'"' + session])]
        cookies += self._draw.sample(others, self._draw.choice([0, 1, 3]))
        cookies *= self._draw.choice([1, 1, 2, 40])
        return self._draw.choice([b"; ", b";", b",", b" "]).join(cookies)

    def _damage(self, text: bytes) -> bytes:
        place = self._draw.randrange(len(text) + 1)
        return text[:place] + self._draw_noise()[:3] + text[place + 1 :]

    def _draw_noise(self) -> bytes:
        length = self._draw.choice([1, 5, 40])
        noise = bytes(self._draw.randrange(256) for _ in range(length))
        # A line's end would begin another header, or the body.
        return noise.replace(b"\r", b"?").replace(b"\n", b"?")


async def exchange(address: tuple[str, int], raw: bytes) -> Answer:
    """Send bytes on a connection of their own; return the answer, of a stream or a WebSocket the head alone."""
    reader, writer = await asyncio.open_connection(*address, limit=2**20)
    try:
        writer.write(raw)
        status, headers = await _read_head(reader)
        while status == 100:
            status, headers = await _read_head(reader)
        if status == 101 or headers.get("content-type", "").startswith("text/event-stream"):
            return Answer(status, headers, b"")
        if raw.startswith(b"HEAD ") or "content-length" not in headers:
            return Answer(status, headers, b"")
        return Answer(status, headers, await reader.readexactly(int(headers["content-length"])))
    finally:
        writer.close()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").strip().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}


async def test_odd_headers_and_cookies(api_client: ApiClient, request: pytest.FixtureRequest) -> None:
    """No 500, no answer but in the form that the document promises, and none left out."""
    admin = api_client.settings.api.admin_key.get_secret_value()
    _, key = await api_client.make_project()
    cookies = [await _sign_in(api_client, each) for each in (admin, key)]
    odd = OddRequests(random.Random(request.config.getoption("randomly_seed")), [admin.encode(), key.encode()], cookies)
    limit, malformed = ANSWER_SECONDS * measure_pace(), 0

    for _ in range(REQUESTS):
        route, raw = odd.draw_request()
        answer = None
        try:
            answer = await asyncio.wait_for(exchange(api_client.host_and_port, raw), limit)
            answer.check(route)
        except (AssertionError, ValueError, KeyError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise AssertionError(f"{route.name} was sent {raw[:2_000]!r} and answered {answer}") from error
        malformed += b'"malformed_request"' in answer.body

    assert all(odd.kinds[kind] for kind in KINDS)
    # What is no HTTP reaches no route, so that the API's metrics do not count it.
    request.node.user_properties.append((FUZZED, {"400": malformed}))
    assert malformed


async def _sign_in(api_client: ApiClient, key: str) -> bytes:
    reply: Any = await api_client.ask("POST", "/v1/session", json={"api_key": key})
    cookie = reply.headers["Set-Cookie"].partition(";")[0]
    return str(cookie).partition("=")[2].encode()
