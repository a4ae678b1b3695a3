"""Helpers for tests of transfers: API, worker and a stand-in GSE; requested files are compared on their targets."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from domain.transfers import names
from infra.settings import Settings
from sims.gse.disks import HostDisks
from sims.gse.scenario import GseScenario
from sims.gse.tasks import FileSpot
from sims.gse.world import GseWorld
from tests.support.api import ApiClient, Reply, running_api
from tests.support.gse import Gse, running_hosts
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker import RunningWorker, running_worker

QUEUES = (names.QUEUE, names.FILE_QUEUE)
FINAL = ("Success", "Failed", "Timeout")
QUICK = GseScenario(upload_seconds=0.05, download_seconds=0.1, jitter_seconds=0.05, terminate_seconds=0.05)
CONTENT = b"the file that everybody wants\n" * 1_000
FOLDER = "/data/config"
GSE_SECRET = "the-secret-of-a-gse-that-no-other-text-holds"


def sha256(content: bytes) -> str:
    """A file's signature."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Transfers:
    """A running API and worker, a GSE with real disks, and a project of the test's own."""

    api_client: ApiClient
    world: GseWorld
    disks: HostDisks
    worker: RunningWorker
    project_id: str
    key: str
    app_id: int = 7
    path: str = "/etc/app.conf"
    joined: list[str] = field(default_factory=list)

    def build_request(self, content: bytes = CONTENT, **fields: Any) -> dict[str, Any]:
        """A request's body without its target."""
        path = str(fields.get("file_path", self.path))
        return {
            "biz_id": 2,
            "app_id": self.app_id,
            "file_path": path,
            "file_name": path.rpartition("/")[2],
            "signature": sha256(content),
            "target_user": "root",
            "target_file_dir": FOLDER,
            **fields,
        }

    async def store(self, content: bytes = CONTENT) -> None:
        """Put a file where the settings' template says."""
        await self.worker.services.objects.put(f"transfers/2/{sha256(content)}", content)

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        """One request with the project's key."""
        return await self.api_client.ask(method, path, key=self.key, **options)

    async def join(self, agent_id: str, container_id: str = "", **fields: Any) -> str:
        """Ask for one target; its task id."""
        target = {"target_agent_id": agent_id, "target_container_id": container_id}
        reply = await self._order("/v1/transfers", self.build_request(**fields) | target)
        task_id: str = reply.body["task_id"]
        return task_id

    async def join_many(self, agent_ids: Sequence[str], **fields: Any) -> list[str]:
        """Ask for many targets in one request; their task ids."""
        targets = [{"target_agent_id": agent_id} for agent_id in agent_ids]
        reply = await self._order("/v1/transfers:batch", self.build_request(**fields) | {"targets": targets})
        return [task["task_id"] for task in reply.body["tasks"]]

    async def _order(self, path: str, body: dict[str, Any]) -> Reply:
        """Repeat a request until it is accepted: on a busy machine callers get 503 and repeat it."""

        async def try_order() -> Reply | None:
            reply = await self.ask("POST", path, json=body)
            assert reply.status in {202, 503}, reply.body
            return reply if reply.status == 202 else None

        reply = await eventually(try_order)
        assert reply is not None
        return reply

    async def status(self, task_id: str) -> dict[str, Any]:
        """What the API says of a task."""
        reply = await self.ask("GET", f"/v1/transfers/{quote(task_id)}")
        assert reply.status == 200, reply.body
        status: dict[str, Any] = reply.body
        return status

    async def wait_for_end(self, task_id: str, timeout: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until a task ended."""

        async def end() -> dict[str, Any]:
            status = await self.status(task_id)
            return status if status["status"] in FINAL else {}

        return await eventually(end, timeout)

    async def job(self, job_id: str, **query: Any) -> dict[str, Any]:
        """What the API says of a job."""
        reply = await self.ask("GET", f"/v1/transfers/jobs/{quote(job_id)}", params=query)
        assert reply.status == 200, reply.body
        job: dict[str, Any] = reply.body
        return job

    async def wait_for_job_end(self, job_id: str, timeout: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until all targets of a job ended."""

        async def end() -> dict[str, Any]:
            job = await self.job(job_id)
            return job if job["status"] in FINAL and job["finished_at"] else {}

        return await eventually(end, timeout)

    def has_file(
        self, agent_id: str, container_id: str = "", *, content: bytes = CONTENT, folder: str = FOLDER
    ) -> bool:
        """Whether the file lies on a target, byte by byte."""
        path = self.disks.path(FileSpot(agent_id, container_id, folder, sha256(content)))
        return path.exists() and path.read_bytes() == content

    @property
    def sends(self) -> Counter[tuple[str, str]]:
        """How often each target was sent something."""
        counts: Counter[tuple[str, str]] = Counter()
        for spot, count in self.world.sends.items():
            counts[spot.agent, spot.container] += count
        return counts


def job_of(task: dict[str, Any]) -> str:
    """The job that a task is in."""
    job_id: str = task["job_id"]
    return job_id


def with_gse(settings: Settings, gse: str, folder: Path, **changes: Any) -> Settings:
    """The settings of a short window and a GSE of the test's own."""
    transfers = {"window_seconds": 1, "retry_pause_seconds": 0.1, "terminate_wait_seconds": 1.0, **changes}
    return settings.model_copy(
        update={
            "gse": settings.gse.model_copy(
                update={
                    "base_url": gse,
                    "app_code": "haulage",
                    "app_secret": SecretStr(GSE_SECRET),
                    "source_agent_id": "0:10.0.0.1",
                    "cache_folder": folder / "cache",
                    "retry_pause_seconds": 0.05,
                }
            ),
            "transfers": settings.transfers.model_copy(update=transfers),
        }
    )


async def window_begins(seconds: int) -> None:
    """Wait for the first moments of a window, so that it does not end between two requests."""
    await eventually(lambda: time.time() % seconds < seconds / 4)


@asynccontextmanager
async def running_transfers(
    settings: Settings, scenario: GseScenario = QUICK, *, gse: Gse | None = None, **changes: Any
) -> AsyncIterator[Transfers]:
    """API, worker, GSE and project over the test's own parts; `changes` replace settings of transfers.

    Args:
        gse: One that runs already; by default another is started.
    """
    async with nullcontext(gse) if gse else running_hosts(settings.data_dir / "hosts") as gse:
        world, disks = gse.world, gse.disks
        world.set(scenario)
        settings = with_gse(settings, gse.base, settings.data_dir, **changes)
        async with running_api(settings) as api_client, running_worker(settings, QUEUES) as running:
            project_id, key = await api_client.make_project()
            transfers = Transfers(api_client, world, disks, running, project_id, key)
            await transfers.store()
            yield transfers
