"""The contenders: ours through its API, and the peers behind the one front that they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
import psutil

from bench import usage
from bench.databases import temporary_database
from bench.peers import environments
from bench.processor import sum_cpu_seconds
from dev.embedded import components
from dev.embedded.stack import EmbeddedStack
from dev.local import LocalInstallation

SYSTEM: Final = "tasks"
TYPE: Final = "bench"
LEASE_SECONDS: Final = 900
HOLD_MAX: Final = 100

# Ended tasks of a removed lane: pos 0 is never begun, so they disturb no other.
_GROW: Final = """
    WITH named AS (SELECT type FROM task_types WHERE name = 'bench'),
    written AS (
        INSERT INTO tasks_archive
        SELECT md5(n::text) || '_bench_0', type, 0, '', 0, 3, '', 0, repeat('x', 100), '', 0, 1, 1, 1
        FROM named, generate_series(1, $1::int) AS n)
    INSERT INTO task_counts (type, pos, status, tasks) SELECT type, 0, 3, $1 FROM named
"""


@dataclass
class TaskContender:
    """A queue that is reached over HTTP."""

    name: str
    base: str
    pids: Mapping[str, int]
    """Its processes, and those that serve it."""
    session: aiohttp.ClientSession
    headers: Mapping[str, str] = field(default_factory=dict)
    database: str = ""
    """Ours only: where its archive grows."""

    @property
    def is_ours(self) -> bool:
        """Whether it is held to the figures that the issue names."""
        return bool(self.database)

    def cpu_seconds(self) -> dict[str, float]:
        """What its processes have used until now."""
        return {name: sum_cpu_seconds(psutil.Process(pid)) for name, pid in self.pids.items()}

    async def counts(self) -> dict[str, int]:
        """Tasks by status."""
        url = f"{self.base}/v1/get_task_counts_by_type"
        async with self.session.get(url, params={"task_type": TYPE}, headers=self.headers) as answer:
            answer.raise_for_status()
            told = await answer.json()
        return {name: told[name] for name in ("pending", "running", "success")}

    async def grow(self, tasks: int) -> None:
        """Insert a number of ended tasks into its tables at once."""
        if self.is_ours:
            connection = await asyncpg.connect(self.database)
            await connection.execute(_GROW, tasks)
            await connection.execute("VACUUM ANALYZE tasks_archive")
            await connection.close()
            return
        timeout = aiohttp.ClientTimeout(total=300)
        async with self.session.post(f"{self.base}/grow", params={"tasks": tasks}, timeout=timeout) as answer:
            answer.raise_for_status()


@dataclass(frozen=True)
class TaskPeer:
    """A peer, by the module that it is started from."""

    name: str
    module: str
    options: Sequence[str] = ()
    grows: bool = True
    """Whether a million ended tasks can be laid into it in a moment."""


PEERS: Final = (
    TaskPeer("seed schema", "seed_schema"),
    TaskPeer("seed schema, grouped", "seed_schema", ("--grouped", "yes")),
    TaskPeer("procrastinate", "procrastinate_jobs"),
    TaskPeer("pgqueuer", "pgqueuer_jobs"),
    TaskPeer("RQ", "rq_jobs", grows=False),
    TaskPeer("Temporal activities", "temporal_activities", grows=False),
)


async def ours(running: LocalInstallation, session: aiohttp.ClientSession) -> TaskContender:
    """As a project of its own, with one type of tasks."""
    admin = {"Authorization": f"Bearer {running.admin_key}"}
    made = await post_json(session, f"{running.api}/v1/projects", {"name": "bench"}, admin)
    headers = {"Authorization": f"Bearer {made['key']['api_key']}"}
    kind = {"task_type": TYPE, "schedule_limit": HOLD_MAX, "max_processing_time": LEASE_SECONDS}
    await post_json(session, f"{running.api}/v1/register_task_type", {"task_type_data": kind}, headers)
    pids = running.stack.list_pids()
    named = {name: pids[name] for name in (*usage.list_own_processes(), *usage.SERVING)}
    address = running.settings.database.url.get_secret_value().replace("+asyncpg", "")
    return TaskContender("ours", running.api, named, session, headers, address)


@asynccontextmanager
async def running_peer(
    peer: TaskPeer, stack: EmbeddedStack, folder: Path, session: aiohttp.ClientSession
) -> AsyncIterator[TaskContender]:
    """Behind its front, with a database of its own and the engine."""
    server = stack.build_database_url().replace("+asyncpg", "")
    async with temporary_database(server) as address:
        options = {
            "seed_schema": ("--database", address),
            "procrastinate_jobs": ("--database", address),
            "pgqueuer_jobs": ("--database", address),
            "rq_jobs": ("--folder", str(folder), "--port", str(stack.reserve_port("redis", 0))),
            "temporal_activities": ("--engine", stack.addresses[components.ENGINE]),
        }[peer.module]
        async with environments.serve_peer(SYSTEM, peer.module, *options, *peer.options) as (pid, said):
            serving = components.ENGINE if peer.module == "temporal_activities" else components.DATABASE
            pids = {"front": pid} | ({} if peer.module == "rq_jobs" else {serving: stack.list_pids()[serving]})
            yield TaskContender(peer.name, said["url"], pids, session)


async def install() -> None:
    """All peers' environments."""
    for module in sorted({peer.module for peer in PEERS}):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)


async def post_json(
    session: aiohttp.ClientSession, url: str, body: object, headers: Mapping[str, str]
) -> dict[str, Any]:
    """Send JSON and return that of the answer."""
    async with session.post(url, json=body, headers=headers) as answer:
        answer.raise_for_status()
        told: dict[str, Any] = await answer.json()
        return told
