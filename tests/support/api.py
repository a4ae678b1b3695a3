"""Helpers for tests of the API: the real API over the test's own components, and a client of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy

from api import app
from api.http import server
from api.http.routes import Routes
from infra.settings import Settings
from services import services
from tests.support.waiting import PATIENCE_SECONDS, eventually

PROBLEM_MEMBERS = {"type", "title", "status", "detail", "code", "request_id", "errors"}


@dataclass(frozen=True)
class Reply:
    """An answer, read to its end."""

    status: int
    headers: CIMultiDictProxy[str]
    body: Any

    @property
    def code(self) -> str:
        """The code of a problem, after a look at its shape."""
        assert self.headers["Content-Type"].startswith("application/problem+json")
        assert self.body.keys() == (PROBLEM_MEMBERS | {"violated-policies"} if self.status == 429 else PROBLEM_MEMBERS)
        assert self.body["status"] == self.status
        assert self.body["request_id"] == self.headers["X-Request-Id"]
        return str(self.body["code"])


@dataclass(frozen=True)
class ApiClient:
    """A running API."""

    address: str
    settings: Settings
    session: aiohttp.ClientSession

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self.address.removeprefix("http://").split(":")
        return host, int(port)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Reply:
        """Send one request; redirects are shown, not followed."""
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})
        async with self.session.request(
            method, self.address + path, headers=sent, allow_redirects=False, **options
        ) as answer:
            is_json = answer.content_type.endswith("json")
            return Reply(
                answer.status, answer.headers, await (answer.json(content_type=None) if is_json else answer.text())
            )

    async def send_bytes(self, first_line: str, header: bytes, key: str | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request with a header that no library would send; return status and JSON of the answer."""
        reader, writer = await asyncio.open_connection(*self.host_and_port)
        lines = [f"{first_line} HTTP/1.1".encode(), header, b"Connection: close"]
        if not header.startswith(b"Host:"):
            lines.insert(1, b"Host: h")
        if key:
            lines.append(f"Authorization: Bearer {key}".encode())
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        try:
            head, _, body = (await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)).partition(b"\r\n\r\n")
        finally:
            writer.close()
        return int(head.split(b" ", 2)[1]), json.loads(body)

    async def as_admin(self, method: str, path: str, **options: Any) -> Reply:
        """Send one request with the admin key."""
        return await self.ask(method, path, key=self.settings.api.admin_key.get_secret_value(), **options)

    async def make_project(self, name: str = "test") -> tuple[str, str]:
        """A new project: its id and its key."""

        async def make() -> dict[str, Any]:
            reply = await self.as_admin("POST", "/v1/projects", json={"name": name})
            # On a busy machine it may be 503, which says: ask again.
            assert reply.status == 201, reply.body
            made: dict[str, Any] = reply.body
            return made

        made = await eventually(make)
        return made["project_id"], made["key"]["api_key"]


@asynccontextmanager
async def running_api(
    settings: Settings, groups: Sequence[Routes] = app.ROUTE_GROUPS, **limits: Any
) -> AsyncIterator[ApiClient]:
    """Serve these routes on a free port; `limits` replace settings of the API.

    Refusals of wrong keys are not delayed unless a test asks for it: all tests come from one address.
    """
    limits = {"port": 0, "wrong_keys_per_minute": 10_000_000, **limits}
    settings = settings.model_copy(update={"api": settings.api.model_copy(update=limits)})
    async with (
        services.open_services(settings) as held,
        server.open_server(app.build_app(held, groups), settings.api) as (address, *_),
        aiohttp.ClientSession() as session,
    ):
        yield ApiClient(address, settings, session)
