"""Helpers for tests of downloads: a worker beside the API, exports asked for and files compared with their source."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from yarl import URL

from domain import webhooks
from domain.downloads import names
from infra.settings import Settings
from services.services import Services
from sims import rows as sample
from sims.source import Source, running_source
from tests.support.api import ApiClient, running_api
from tests.support.engine import terminate_all
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker import RunningWorker, running_worker

QUEUES = (names.QUEUE, names.FETCH_QUEUE, names.RENDER_QUEUE, webhooks.QUEUE)
FINAL = ("succeeded", "failed", "cancelled", "expired")


@dataclass(frozen=True)
class Downloads:
    """A running API and worker, a source that the guard lets through, and a project of the test's own."""

    api_client: ApiClient
    source: Source
    services: Services
    project_id: str
    key: str
    worker: RunningWorker
    others: set[str] = field(default_factory=set)
    """Projects of other tests over the same parts."""

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Downloads]:
        """The same parts for one test, with a project of its own; what it leaves under way is ended."""
        self.source.forget()
        project_id, key = await self.api_client.make_project()
        yield replace(self, project_id=project_id, key=key, others=set(self.others))
        self.others.add(project_id)
        await terminate_all(self.services.engine, f"HaulageProject = '{project_id}'")

    async def stop_worker(self) -> None:
        """Ask the worker to stop, as SIGTERM does, and wait until it has."""
        await self.worker.stop()

    @asynccontextmanager
    async def run_other_worker(self) -> AsyncIterator[None]:
        """Another worker in its place."""
        async with running_worker(self.services.settings, QUEUES):
            yield

    async def start(self, source_url: str, **request: Any) -> str:
        """Ask for a download; its task id."""
        reply = await self.api_client.ask(
            "POST", "/v1/downloads", key=self.key, json={"source_url": source_url, **request}
        )
        assert reply.status == 202, reply.body
        task_id: str = reply.body["task_id"]
        return task_id

    async def status(self, task_id: str) -> dict[str, Any]:
        """What the API says of it."""
        reply = await self.api_client.ask("GET", f"/v1/downloads/{task_id}", key=self.key)
        assert reply.status == 200, reply.body
        status: dict[str, Any] = reply.body
        return status

    async def wait_for_end(self, task_id: str, timeout: float = 2 * PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until it ended."""

        async def end() -> dict[str, Any]:
            status = await self.status(task_id)
            return status if status["state"] in FINAL else {}

        return await eventually(end, timeout)

    async def run(self, source_url: str, **request: Any) -> dict[str, Any]:
        """Ask for a download and wait for its end."""
        return await self.wait_for_end(await self.start(source_url, **request))

    async def file(self, task_id: str) -> bytes:
        """The finished file."""
        reply = await self.api_client.ask("GET", f"/v1/downloads/{task_id}/file", key=self.key)
        assert reply.status == 302, reply.body
        async with aiohttp.ClientSession() as session:
            answer = await session.get(URL(reply.headers["Location"], encoded=True))
            assert answer.status == 200
            return await answer.read()

    async def leftovers(self) -> list[str]:
        """Everything that lies in the store and is not another test's, uploads that are still open included."""
        objects = [listed.key for listed in await self.services.objects.list("")]
        keys = objects + [upload.key for upload in await self.services.objects.list_open_uploads("")]
        return [key for key in keys if self.others.isdisjoint(key.split("/"))]

    async def is_empty(self) -> bool:
        """Whether nothing lies in the store."""
        return await self.leftovers() == []


@asynccontextmanager
async def running_downloads(
    settings: Settings,
    resume_window_seconds: int = 5,
    *,
    source: Source | None = None,
    retry_pause_seconds: float = 0.01,
) -> AsyncIterator[Downloads]:
    """API, worker, source and project over the test's own parts; by default what failed is soon wiped.

    Args:
        source: One that runs already; by default another is started.
        retry_pause_seconds: Before a page is asked for again for the first time.
    """
    async with nullcontext(source) if source else running_source() as source:
        allowed = source.base.removeprefix("http://")
        settings = settings.model_copy(
            update={
                "guard": settings.guard.model_copy(update={"allow": [*settings.guard.allow, allowed]}),
                "downloads": settings.downloads.model_copy(
                    update={
                        "retry_pause_seconds": retry_pause_seconds,
                        "rerun_pause_seconds": 0.01,
                        "resume_window_seconds": resume_window_seconds,
                    }
                ),
            }
        )
        async with running_api(settings) as api_client, running_worker(settings, QUEUES) as running:
            project_id, key = await api_client.make_project()
            yield Downloads(api_client, source, running.services, project_id, key, running)


def parse_csv(data: bytes) -> list[list[str]]:
    """The rows of a CSV file, heads first."""
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def expected_rows(seed: int, numbers: Iterable[int]) -> list[list[str]]:
    """The sample source's rows as CSV shows them, heads first."""
    return [
        list(sample.row(seed, 0)),
        *([to_csv_text(value) for value in sample.row(seed, n).values()] for n in numbers),
    ]


def to_csv_text(value: object) -> str:
    """A value as it is written in a CSV cell."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return str(value)
