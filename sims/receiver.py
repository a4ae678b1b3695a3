"""A receiver of webhooks: `POST /hook?tag=…&answers=503,reset,200`, with everything it was sent kept for a look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import urlencode

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, Field

HOST = "127.0.0.1"

_Answers = Annotated[
    tuple[int | Literal["reset"], ...],
    BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value),
]


class ReceiverRequest(BaseModel):
    """How a receiver takes what it is sent."""

    tag: str = Field(default="", description="whose messages these are")
    answers: _Answers = Field(default=(200,), min_length=1, description="one for each message; the last one stays")
    retry_after: str = Field(default="", description="sent with answers that are no success")
    location: str = Field(default="", description="where redirects lead")
    delay_ms: int = Field(default=0, ge=0, description="how long each answer takes")
    text: str = ""
    repeat: int = Field(default=1, ge=1, description="how often the text is said")

    def answer(self, place: int) -> int | Literal["reset"]:
        """What the message at this place (from 0) is answered."""
        return self.answers[min(place, len(self.answers) - 1)]


@dataclass(frozen=True)
class Received:
    """One message as it came."""

    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


@dataclass
class Receiver:
    """A running receiver."""

    base: str = ""
    messages: dict[str, list[Received]] = field(default_factory=dict)

    def url(self, **ask: str | int) -> str:
        """The callback address for this behaviour."""
        return f"{self.base}/hook?{urlencode(ask)}"

    def list_received(self, tag: str = "") -> list[Received]:
        """All messages of a tag, in the order in which they came."""
        return self.messages.get(tag, [])


@asynccontextmanager
async def running_receiver() -> AsyncIterator[Receiver]:
    """Serve on a free port of 127.0.0.1."""
    receiver = Receiver()

    async def hook(request: web.Request) -> web.StreamResponse:
        ask = ReceiverRequest.model_validate(dict(request.query))
        kept = receiver.messages.setdefault(ask.tag, [])
        kept.append(Received({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        await asyncio.sleep(ask.delay_ms / 1_000)
        return _answer(request, ask, ask.answer(len(kept) - 1))

    app = web.Application()
    app.router.add_post("/hook", hook)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        receiver.base = f"http://{host}:{port}"
        yield receiver
    finally:
        await runner.cleanup()


def _answer(request: web.Request, ask: ReceiverRequest, answer: int | Literal["reset"]) -> web.StreamResponse:
    if isinstance(answer, str):
        if request.transport:
            request.transport.abort()
        return web.Response()
    headers = {"Retry-After": ask.retry_after, "Location": ask.location} if answer >= 300 else {}
    return web.Response(
        status=answer, text=ask.text * ask.repeat, headers={name: value for name, value in headers.items() if value}
    )
