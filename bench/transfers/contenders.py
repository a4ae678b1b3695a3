"""The contenders: ours through its API, and the design that it comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp

from bench import usage
from bench.peers import environments
from bench.transfers.surroundings import BenchRepository, GseProcess
from dev.local import LocalInstallation

SYSTEM = "transfers"
SEED_DESIGN = "seed_design"
BIZ_ID, APP_ID = 2, 7
FOLDER, USER = "/data/app", "root"


@dataclass(frozen=True)
class JobProgress:
    """How far a job is."""

    done: bool
    succeeded: int


class TransferContender(Protocol):
    """Accepts joins."""

    name: str
    base: str
    headers: dict[str, str]
    join_path: str
    status_prefix: str

    def pids(self) -> dict[str, int]:
        """Its processes, and those that serve it."""

    async def read_progress(self, job_id: str) -> JobProgress:
        """How far a job is."""


def join(agent_id: str, path: str, signature: str) -> dict[str, Any]:
    """A request, the same for everybody."""
    return {
        "biz_id": BIZ_ID,
        "app_id": APP_ID,
        "file_path": path,
        "file_name": path.rpartition("/")[2],
        "signature": signature,
        "target_agent_id": agent_id,
        "target_container_id": "",
        "target_user": USER,
        "target_file_dir": FOLDER,
    }


def job_id(path: str, window_number: int) -> str:
    """The job of a window; both name it as the document does."""
    return f"AsyncDownloadJob:{BIZ_ID}:{APP_ID}:{path}:{window_number}"


class HaulageTransfers:
    """A project of the installation."""

    name = "ours"
    join_path = "/v1/transfers"
    status_prefix = "/v1/transfers/"

    def __init__(self, running: LocalInstallation, session: aiohttp.ClientSession, headers: dict[str, str]) -> None:
        self.base = running.api
        self.headers = headers
        self._running = running
        self._session = session

    @classmethod
    async def register(cls, running: LocalInstallation, session: aiohttp.ClientSession) -> HaulageTransfers:
        """As a project of its own."""
        admin = {"Authorization": f"Bearer {running.admin_key}"}
        async with session.post(f"{running.api}/v1/projects", json={"name": "bench"}, headers=admin) as answer:
            answer.raise_for_status()
            made = await answer.json()
        return cls(running, session, {"Authorization": f"Bearer {made['key']['api_key']}"})

    def pids(self) -> dict[str, int]:
        """API, workers, engine, database, store."""
        pids = self._running.stack.list_pids()
        return {name: pids[name] for name in (*usage.list_own_processes(), *usage.SERVING)}

    async def read_progress(self, job_id: str) -> JobProgress:
        """By the job's counts."""
        async with self._session.get(f"{self.base}{self.status_prefix}jobs/{job_id}", headers=self.headers) as answer:
            job = await answer.json()
        if answer.status == HTTPStatus.NOT_FOUND:  # no request joined that window
            return JobProgress(done=True, succeeded=0)
        return JobProgress(bool(job.get("finished_at")), job.get("counts", {}).get("Success", 0))


class SeedDesign:
    """Redis, an API and a scheduler."""

    name = "seed design"
    join_path = "/tasks"
    status_prefix = "/tasks/"

    def __init__(self, base: str, pid: int, session: aiohttp.ClientSession) -> None:
        self.base = base
        self.headers: dict[str, str] = {}
        self._pid = pid
        self._session = session

    def pids(self) -> dict[str, int]:
        """All three are its children."""
        return {"all": self._pid}

    async def read_progress(self, job_id: str) -> JobProgress:
        """By the job's maps."""
        async with self._session.get(f"{self.base}/jobs/{job_id}") as answer:
            job = await answer.json()
        if job is None:  # no request joined that window
            return JobProgress(done=True, succeeded=0)
        return JobProgress(job["status"] in ("Success", "Failed", "Timeout"), job["success"])


@asynccontextmanager
async def running_seed_design(
    running: LocalInstallation, gse: GseProcess, repository: BenchRepository, session: aiohttp.ClientSession
) -> AsyncIterator[SeedDesign]:
    """The peer in `bench/peers/transfers`."""
    port = running.stack.reserve_port("redis", 0)
    arguments = ("--port", str(port), "--gse", gse.base, "--repository", repository.base)
    async with environments.serve_peer(SYSTEM, SEED_DESIGN, *arguments) as (pid, said):
        yield SeedDesign(said["url"], pid, session)
