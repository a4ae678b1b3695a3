"""Helpers for tests of transfers: API, worker and a stand-in GSE, files asked for and compared where they arrive."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from infra.settings import Settings
from sims.gse.disks import Disks
from sims.gse.scenario import Scenario
from sims.gse.server import running_gse
from sims.gse.tasks import Spot
from sims.gse.world import World
from tests.door import Door, Reply, opened
from tests.exports import Working, working
from tests.stack import PATIENCE_SECONDS, eventually

FINAL = ("Success", "Failed", "Timeout")
QUICK = Scenario(upload_seconds=0.05, download_seconds=0.1, jitter_seconds=0.05, terminate_seconds=0.05)
CONTENT = b"the file that everybody wants\n" * 1_000
FOLDER = "/data/config"


def sha256(content: bytes) -> str:
    """A file's signature."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Transfers:
    """A running API and worker, a GSE with real disks, and a project of the test's own."""

    door: Door
    world: World
    disks: Disks
    worker: Working
    project_id: str
    key: str
    app_id: int = 7
    path: str = "/etc/app.conf"
    joined: list[str] = field(default_factory=list)

    def wanted(self, content: bytes = CONTENT, **fields: Any) -> dict[str, Any]:
        """A request's body without its target."""
        return {
            "biz_id": 2,
            "app_id": self.app_id,
            "file_path": self.path,
            "file_name": "app.conf",
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
        return await self.door.ask(method, path, key=self.key, **options)

    async def join(self, agent_id: str, container_id: str = "", **fields: Any) -> str:
        """Ask for one target; its task id."""
        target = {"target_agent_id": agent_id, "target_container_id": container_id}
        reply = await self.ask("POST", "/v1/transfers", json=self.wanted(**fields) | target)
        assert reply.status == 202, reply.body
        task_id: str = reply.body["task_id"]
        return task_id

    async def join_many(self, agent_ids: Sequence[str], **fields: Any) -> list[str]:
        """Ask for many targets in one request; their task ids."""
        targets = [{"target_agent_id": agent_id} for agent_id in agent_ids]
        reply = await self.ask("POST", "/v1/transfers:batch", json=self.wanted(**fields) | {"targets": targets})
        assert reply.status == 202, reply.body
        return [task["task_id"] for task in reply.body["tasks"]]

    async def status(self, task_id: str) -> dict[str, Any]:
        """What the API says of a task."""
        reply = await self.ask("GET", f"/v1/transfers/{quote(task_id)}")
        assert reply.status == 200, reply.body
        status: dict[str, Any] = reply.body
        return status

    async def ended(self, task_id: str, timeout: float = PATIENCE_SECONDS) -> dict[str, Any]:
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

    async def job_ended(self, job_id: str, timeout: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until all targets of a job ended."""

        async def end() -> dict[str, Any]:
            job = await self.job(job_id)
            return job if job["status"] in FINAL and job["finished_at"] else {}

        return await eventually(end, timeout)

    def delivered(
        self, agent_id: str, container_id: str = "", *, content: bytes = CONTENT, folder: str = FOLDER
    ) -> bool:
        """Whether the file lies on a target, byte by byte."""
        path = self.disks.path(Spot(agent_id, container_id, folder, sha256(content)))
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


def tuned(settings: Settings, gse: str, folder: Path, **changes: Any) -> Settings:
    """The settings of a short window and a GSE of the test's own."""
    transfers = {"window_seconds": 1, "retry_pause_seconds": 0.1, "terminate_wait_seconds": 1.0, **changes}
    return settings.model_copy(
        update={
            "gse": settings.gse.model_copy(
                update={
                    "base_url": gse,
                    "app_code": "haulage",
                    "app_secret": SecretStr("secret"),
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
async def transferring(settings: Settings, scenario: Scenario = QUICK, **changes: Any) -> AsyncIterator[Transfers]:
    """API, worker, GSE and project over the test's own parts; `changes` replace settings of transfers."""
    disks = Disks(settings.data_dir / "hosts", links=True)
    world = World(scenario, disks)
    async with running_gse(world) as gse:
        settings = tuned(settings, gse, settings.data_dir, **changes)
        async with opened(settings) as door, working(settings) as running:
            project_id, key = await door.make_project()
            transfers = Transfers(door, world, disks, running, project_id, key)
            await transfers.store()
            yield transfers
