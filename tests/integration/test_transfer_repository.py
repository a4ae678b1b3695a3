"""The repository over HTTP: where its template leads, how often it is asked, and what its answers mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from pydantic import SecretStr

from infra.settings import Settings
from tests.support.pace import measure_pace
from tests.support.transfers import CONTENT, Transfers, job_of, running_transfers, sha256, window_begins

pytestmark = pytest.mark.stack

SECRET = "Bearer of the repository"


@dataclass
class FailingRepository:
    """A repository that answers these statuses, then 200 and the file."""

    statuses: list[int] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        """One request."""
        self.asked.append((request.raw_path, request.headers.get("Authorization")))
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, body=CONTENT if status == 200 else b"not now")


@asynccontextmanager
async def fetching(settings: Settings, repository: FailingRepository, **changes: Any) -> AsyncIterator[Transfers]:
    """Transfers whose files come from there."""
    app = web.Application()
    app.router.add_get("/{rest:.*}", repository.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        guard = settings.guard.model_copy(update={"allow": [f"{host}:{port}"]})
        template = f"http://{host}:{port}/{{biz_id}}/{{app_id}}/{{path}}?sha256={{signature}}"
        settings = settings.model_copy(update={"guard": guard})
        changes |= {"repository": template, "repository_authorization": SecretStr(SECRET)}
        async with running_transfers(settings, **changes) as transfers:
            yield transfers
    finally:
        await runner.cleanup()


async def test_a_file_is_fetched_once_for_a_job(settings: Settings) -> None:
    """However many shards and workers there are; from where the template says, with its own key."""
    repository = FailingRepository()
    async with fetching(settings, repository, window_seconds=2, shard_targets=3) as transfers:
        agents = [f"agent-{n}" for n in range(20)]
        task_ids = await transfers.join_many(agents, file_path="/etc/配置 1/50%.conf")
        ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]

        assert {end["status"] for end in ends} == {"Success"}
        assert len(transfers.world.tasks) >= 7
        assert all(transfers.has_file(agent_id) for agent_id in agents)
    path = f"/2/7/etc/%E9%85%8D%E7%BD%AE%201/50%25.conf?sha256={sha256(CONTENT)}"
    assert repository.asked == [(path, SECRET)]


async def test_a_repository_that_is_busy_is_asked_again(settings: Settings) -> None:
    """It may have been restarted: that counts as no failure."""
    repository = FailingRepository([503, 429, 500])
    async with fetching(settings, repository) as transfers:
        end = await transfers.wait_for_end(await transfers.join("agent-1"))

    assert end["status"] == "Success"
    assert len(repository.asked) == 4


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (404, "Upload the file first"),
        (403, "HAULAGE_TRANSFERS__REPOSITORY_AUTHORIZATION"),
        (302, "Redirects are not followed"),
        (204, "Only 200 brings a file"),
    ],
)
async def test_a_repository_that_says_no_twice_is_believed(settings: Settings, status: int, remedy: str) -> None:
    """What is to be done depends on what it said."""
    repository = FailingRepository([status, status])
    async with fetching(settings, repository) as transfers:
        end = await transfers.wait_for_end(await transfers.join("agent-1"))
        job = await transfers.wait_for_job_end(job_of(end))

    assert (end["status"], end["reason"], job["status"]) == ("Failed", "file_unavailable", "Failed")
    assert f"answered {status}" in end["message"]
    assert remedy in end["message"]
    assert len(repository.asked) == 2


async def test_what_was_cancelled_is_cancelled_where_its_file_is_not_there_either(settings: Settings) -> None:
    """A cancelled target ends as cancelled, not by the fault; the others end by the fault."""
    repository = FailingRepository([404] * 2)
    window_seconds = round(4 * measure_pace())
    async with fetching(settings, repository, window_seconds=window_seconds) as transfers:
        await window_begins(window_seconds)
        unwanted, wanted = await transfers.join_many(["agent-1", "agent-2"])
        answer = await transfers.ask("POST", f"/v1/transfers/{quote(unwanted)}/cancel")
        ends = [await transfers.wait_for_end(task_id) for task_id in (unwanted, wanted)]

    assert answer.body["status"] == "Pending"
    assert [(end["status"], end["reason"]) for end in ends] == [("Failed", "cancelled"), ("Failed", "file_unavailable")]
    assert "before it had arrived" in ends[0]["message"]


async def test_a_repository_that_has_the_file_a_moment_later(settings: Settings) -> None:
    """A file that was only just uploaded need not be everywhere yet."""
    repository = FailingRepository([404])
    async with fetching(settings, repository) as transfers:
        end = await transfers.wait_for_end(await transfers.join("agent-1"))

    assert end["status"] == "Success"
    assert len(repository.asked) == 2
