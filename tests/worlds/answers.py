"""Answers over HTTP: what becomes of one on its way, by the flaw that bends it, and how it is sent."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import web

TRICKLE_SECONDS = 0.3
STALL_SECONDS = 60.0
HTML = b"<html><body>Please log in</body></html>"
REASONS = (
    {"success": False, "error": "quota exceeded"},
    {"status": 500, "msg": "no such report", "data": []},
    {"code": 101, "message": "too often", "data": []},
    {"status": 503, "data": []},
)
NOTHINGS = (b"", b"null", b"{}")


@dataclass
class Answer:
    """What is sent."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    cut_at: int | None = None
    """Where the connection ends, though more was announced."""
    is_chunked: bool = False
    pause_seconds: float = 0.0
    is_trickle: bool = False
    is_stalled: bool = False
    """Whether nothing comes behind the headers."""


@dataclass(frozen=True)
class Bending:
    """How a page was asked for, and what the flaw says of how to bend its answer."""

    page: int
    attempt: int
    dial: int
    passes: bool
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    """By the clock of who answers, as its header Date tells it."""

    def place(self, length: int) -> int:
        """Where it is cut: what passes breaks off elsewhere each time."""
        return 1 + (self.dial + 37 * self.attempt) % max(1, length - 1) if self.passes else length // 2


Bend = Callable[[Answer, Bending], None]


def _refuse(answer: Answer, status: int, body: bytes = b"") -> None:
    answer.status, answer.body = status, body


def _server_error(answer: Answer, how: Bending) -> None:
    _refuse(answer, (500, 502, 504)[how.dial % 3], HTML if how.dial % 2 else b"")


def _too_often(answer: Answer, how: Bending) -> None:
    _refuse(answer, 429, b'{"error":"slow down"}')
    past = format_datetime(how.now - timedelta(days=1), usegmt=True)
    value = (None, "0", "soon", past, "1", "-5", "2")[how.dial % 7]
    if value is not None:
        answer.headers["Retry-After"] = value


def _too_often_for_long(answer: Answer, how: Bending) -> None:
    _refuse(answer, 429, b'{"error":"come back tomorrow"}')
    far = format_datetime(how.now + timedelta(days=30_000), usegmt=True)
    answer.headers["Retry-After"] = ("86400", far, "9" * 400)[how.dial % 3]


def _error_in_body(answer: Answer, how: Bending) -> None:
    answer.body = json.dumps(REASONS[how.dial % len(REASONS)]).encode()


def _login_page(answer: Answer, _: Bending) -> None:
    answer.body, answer.headers = HTML, {"Content-Type": "text/html"}


def _redirect(address: str) -> Bend:
    def bend(answer: Answer, _: Bending) -> None:
        answer.status, answer.body, answer.headers = 302, b"", {"Location": address}

    return bend


def _redirect_to_itself(answer: Answer, how: Bending) -> None:
    _redirect(f"rows?page={how.page}")(answer, how)


def _cut_body(answer: Answer, how: Bending) -> None:
    answer.cut_at = how.place(len(answer.body))


def _cut_chunks(answer: Answer, how: Bending) -> None:
    answer.cut_at, answer.is_chunked = how.place(len(answer.body)), True


def _nothing(answer: Answer, how: Bending) -> None:
    kind = how.dial % (len(NOTHINGS) + 1)
    if kind == len(NOTHINGS):
        _refuse(answer, 204)
    else:
        answer.body = NOTHINGS[kind]


def _trickle(answer: Answer, _: Bending) -> None:
    answer.is_trickle = True


def _stall(answer: Answer, _: Bending) -> None:
    answer.is_stalled = True


def _slow(answer: Answer, how: Bending) -> None:
    answer.pause_seconds = min(0.02 + 0.02 * how.page, 0.1)


def _cut_json(answer: Answer, _: Bending) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


def _gzip_not(answer: Answer, _: Bending) -> None:
    answer.headers["Content-Encoding"] = "gzip"


def _gzip_unsaid(answer: Answer, _: Bending) -> None:
    answer.body = gzip.compress(answer.body)


def _gzip_in_members(answer: Answer, _: Bending) -> None:
    middle = len(answer.body) // 2
    answer.body = gzip.compress(answer.body[:middle]) + gzip.compress(answer.body[middle:])
    answer.headers["Content-Encoding"] = "gzip"


def _gzip_cut(answer: Answer, how: Bending) -> None:
    answer.body = gzip.compress(answer.body)[: -9 - (7 * how.attempt if how.passes else 0)]
    answer.headers["Content-Encoding"] = "gzip"


def _gzip_twice(answer: Answer, _: Bending) -> None:
    answer.body = gzip.compress(gzip.compress(answer.body))
    answer.headers["Content-Encoding"] = "gzip"


BENDS: Mapping[str, Bend] = {
    "server_error": _server_error,
    "too_often": _too_often,
    "too_often_for_long": _too_often_for_long,
    "error_in_body": _error_in_body,
    "limit_as_403": lambda answer, _: _refuse(answer, 403, b'{"error":"rate limit exceeded"}'),
    "limit_as_503": lambda answer, _: _refuse(answer, 503, b"try again"),
    "credential_dies": lambda answer, _: _refuse(answer, 401, b'{"error":"token expired"}'),
    "login_page": _login_page,
    "login_redirect": _redirect("/login"),
    "redirected": _redirect("https://example.com/rows"),
    "redirected_relatively": _redirect("../rows"),
    "redirected_in_circles": _redirect_to_itself,
    "cut_body": _cut_body,
    "cut_chunks": _cut_chunks,
    "nothing": _nothing,
    "trickle": _trickle,
    "stall": _stall,
    "slow": _slow,
    "cut_json": _cut_json,
    "gzip_not": _gzip_not,
    "gzip_unsaid": _gzip_unsaid,
    "gzip_in_members": _gzip_in_members,
    "gzip_cut": _gzip_cut,
    "gzip_twice": _gzip_twice,
}


async def send(request: web.Request, answer: Answer) -> web.StreamResponse:
    """Send an answer, cut off or slowly where it says so."""
    if answer.pause_seconds:
        await asyncio.sleep(answer.pause_seconds)
    if answer.cut_at is None and not answer.is_trickle and not answer.is_stalled:
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    if answer.is_chunked:
        response.enable_chunked_encoding()
    else:
        response.content_length = len(answer.body)
    await response.prepare(request)
    if answer.is_trickle or answer.is_stalled:
        with suppress(ConnectionError):
            await (_stand_still(request) if answer.is_stalled else _send_by_bytes(response, answer.body))
        return response
    await response.write(answer.body[: answer.cut_at])
    if request.transport:
        request.transport.close()
    return response


async def _send_by_bytes(response: web.StreamResponse, body: bytes) -> None:
    for at in range(len(body)):
        await response.write(body[at : at + 1])
        await asyncio.sleep(TRICKLE_SECONDS)


async def _stand_still(request: web.Request) -> None:
    """Send nothing as long as the other side waits."""
    for _ in range(int(STALL_SECONDS / TRICKLE_SECONDS)):
        if request.transport is None or request.transport.is_closing():
            return
        await asyncio.sleep(TRICKLE_SECONDS)
