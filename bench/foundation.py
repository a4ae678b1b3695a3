"""Foundation: how fast an installation is ready, and what an export costs."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from bench.report import Figure, publish
from bench.usage import list_own_processes
from dev.local import LocalInstallation, run_installation
from infra.settings import Settings

RUNS = 5
ROWS = 10_000 if os.environ.get("SIZE") == "small" else 1_000_000
READY_REACH_SECONDS = 5.0
MEMORY_REACH_MB = 400.0
POLL_SECONDS = 0.02


async def measure() -> None:
    """Start an installation several times on the same data folder, export once, publish."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings().model_copy(update={"data_dir": Path(folder)})
        ready = []
        for _ in range(RUNS):
            began = time.perf_counter()
            async with run_installation(settings):
                ready.append(time.perf_counter() - began)
        async with run_installation(settings) as running:
            seconds, peak_mb = await _export(running)
    starts = ", ".join(f"{each:.1f}" for each in ready)
    publish(
        "foundation",
        [
            Figure(
                "ready after `haulage up`",
                statistics.median(ready),
                "s",
                f"median of {RUNS} starts, the first with an empty folder: {starts}",
                f"< {READY_REACH_SECONDS}",
                statistics.median(ready) < READY_REACH_SECONDS,
            ),
            Figure(
                f"CSV export of {ROWS:,} rows", ROWS / seconds, "rows/s", "request to state succeeded, page_size 1000"
            ),
            Figure(
                "largest process of ours",
                peak_mb,
                "MB",
                "resident memory of API and workers during that export, sampled every 20 ms",
                f"< {MEMORY_REACH_MB}",
                peak_mb < MEMORY_REACH_MB,
            ),
        ],
    )


async def _export(running: LocalInstallation) -> tuple[float, float]:
    """Seconds from request to file, and the largest resident memory of a process of Haulage meanwhile."""
    async with aiohttp.ClientSession(base_url=running.api) as session:
        headers = {"Authorization": f"Bearer {running.admin_key}"}
        made = await _json(session.post("/v1/projects", json={"name": "bench"}, headers=headers))
        session.headers["Authorization"] = f"Bearer {made['key']['api_key']}"
        began = time.perf_counter()
        request = {"source_url": f"{running.source}/rows?rows={ROWS}", "page_size": 1000}
        task_id = (await _json(session.post("/v1/downloads", json=request)))["task_id"]
        peak = 0
        while True:
            peak = max(peak, *(_resident(running, name) for name in list_own_processes()))
            status = await _json(session.get(f"/v1/downloads/{task_id}"))
            if status["state"] not in ("pending", "running"):
                break
            await asyncio.sleep(POLL_SECONDS)
    if (status["state"], status["rows"]) != ("succeeded", ROWS):
        raise RuntimeError(f"the export did not end right: {status}")
    return time.perf_counter() - began, peak / 1024**2


def _resident(running: LocalInstallation, name: str) -> int:
    resident: int = psutil.Process(running.stack.list_pids()[name]).memory_info().rss
    return resident


async def _json(request: Any) -> dict[str, Any]:
    async with request as answer:
        body: dict[str, Any] = await answer.json()
        answer.raise_for_status()
        return body
