"""A business system as the fault tests play it: it repeats what failed, and never takes no answer for an answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from tests.support.deployment import PATIENCE_SECONDS, Deployment
from tests.support.waiting import eventually

PAUSE_SECONDS = 0.1
WATCH_SECONDS = 0.5
"""Between looks at a download whose end is waited for: twenty projects that look all the time are a load, too."""


@dataclass(frozen=True)
class Caller:
    """Calls the API with a project's key."""

    session: aiohttp.ClientSession
    project_id: str = ""

    async def call(self, method: str, path: str, status: int, **options: Any) -> aiohttp.ClientResponse:
        """Repeat a request until it is answered as it should be: while parts are down, it cannot."""
        hindrance = "no answer"
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    try:
                        answer = await self.session.request(method, path, allow_redirects=False, **options)
                        text = await answer.text()
                    except (aiohttp.ClientError, ConnectionError) as error:
                        hindrance = repr(error)
                    else:
                        if answer.status == status:
                            return answer
                        hindrance = f"{answer.status} {text}"
                        assert answer.status >= 500, hindrance
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{method} {path} in {PATIENCE_SECONDS} s: at last {hindrance}") from None

    async def start(self, source_url: str, *, key: str | None = None, **request: Any) -> str:
        """Ask for a download, once however often the request is repeated; its task id."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        body = {"source_url": source_url, **request}
        answer = await self.call("POST", "/v1/downloads", 202, json=body, headers=headers)
        task_id: str = (await answer.json())["task_id"]
        return task_id

    async def until(
        self,
        task_id: str,
        reached: Callable[[dict[str, Any]], bool],
        patience_seconds: float = PATIENCE_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> dict[str, Any]:
        """Watch a download until it is where it should be, or at its end."""
        async with asyncio.timeout(patience_seconds):
            while True:
                answer = await self.call("GET", f"/v1/downloads/{task_id}", 200)
                status: dict[str, Any] = await answer.json()
                if reached(status) or status["state"] not in ("pending", "running"):
                    return status
                await asyncio.sleep(pause_seconds)

    async def wait_for_end(self, task_id: str, patience_seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Watch a download to its end."""
        return await self.until(task_id, lambda _: False, patience_seconds, WATCH_SECONDS)

    async def is_fetching(self, task_id: str) -> bool:
        """Whether its rows are on their way."""
        status: dict[str, Any] = await (await self.call("GET", f"/v1/downloads/{task_id}", 200)).json()
        return bool(status["phase"] == "fetching" and status["rows"])

    async def file(self, task_id: str) -> bytes:
        """The finished file."""

        async def read() -> bytes:
            answer = await self.call("GET", f"/v1/downloads/{task_id}/file", 302)
            url = URL(answer.headers["Location"], encoded=True)
            try:
                async with aiohttp.ClientSession() as session, session.get(url) as file:
                    assert file.status == 200, await file.text()
                    return await file.read()
            except aiohttp.ClientError as error:
                raise AssertionError(f"the store does not answer: {error!r}") from error

        return await eventually(read, PATIENCE_SECONDS)


@asynccontextmanager
async def running_caller(deployment: Deployment) -> AsyncIterator[Caller]:
    """Give a business system with a project of its own."""
    async with aiohttp.ClientSession(base_url=deployment.api) as session:
        caller = Caller(session)
        admin = {"Authorization": f"Bearer {deployment.installation.admin_key}"}
        answer = await caller.call("POST", "/v1/projects", 201, json={"name": "faults"}, headers=admin)
        made = await answer.json()
        session.headers["Authorization"] = f"Bearer {made['key']['api_key']}"
        yield Caller(session, made["project_id"])
