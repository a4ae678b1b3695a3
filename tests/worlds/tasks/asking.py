"""Asking: requests of a world, through one API process or another, answered, broken off or lost."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

UNAVAILABLE = 8036
PAUSE_SECONDS = 0.1

Json = dict[str, Any]


@dataclass(frozen=True)
class ApiResponse:
    """An answer, and when it was asked for; the times are seconds since 1970."""

    body: Json
    sent_at: float
    """The first time."""
    at: float
    lost: int
    """How often it was sent before, and no answer was read."""

    @property
    def code(self) -> int:
        """Of the only one that was asked for, where there is a list."""
        results = self.body.get("results")
        code: int = results[0]["code"] if results else self.body["code"]
        return code


@dataclass
class ApiCaller:
    """Sends the requests of one world."""

    addresses: Sequence[str]
    key: str
    session: aiohttp.ClientSession
    random: Random
    turns: itertools.count[int] = field(default_factory=itertools.count)

    async def ask(self, method: str, route: str, **options: Any) -> Json | None:
        """What either process answers; None if it breaks off, or says that a part is down."""
        address = self.addresses[next(self.turns) % len(self.addresses)]
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            async with self.session.request(method, f"{address}/v1/{route}", headers=headers, **options) as answer:
                body: Json = await answer.json(content_type=None)
        except (aiohttp.ClientError, ConnectionError, ValueError, TimeoutError):
            return None
        if answer.status >= 500 or body["code"] == UNAVAILABLE or _has_none(body):
            return None
        assert answer.status == 200, body
        return body

    async def insist(self, method: str, route: str, *, loses: bool = False, **options: Any) -> ApiResponse:
        """Ask until there is an answer.

        Args:
            method: Of the request.
            route: Its last part.
            loses: Hang up the first time, before the answer.
            options: What is sent.
        """
        sent_at, lost = time.time(), 0
        if loses:
            await self.break_off(method, route, **options)
            lost += 1
        while (body := await self.ask(method, route, **options)) is None:
            lost += 1
            await asyncio.sleep(PAUSE_SECONDS)
        return ApiResponse(body, sent_at, time.time(), lost)

    async def break_off(self, method: str, route: str, **options: Any) -> None:
        """Send a request and disconnect after some milliseconds without reading a response."""
        asking = asyncio.create_task(self.ask(method, route, **options))
        await asyncio.wait([asking], timeout=self.random.choice((0.001, 0.004, 0.01, 0.02)))
        asking.cancel()
        await asyncio.wait([asking])


def _has_none(body: Json) -> bool:
    return any(each["code"] == UNAVAILABLE for each in body.get("results", ()))
