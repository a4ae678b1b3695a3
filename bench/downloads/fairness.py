"""Fairness: what ten endless exports of one project cost another project's small one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench.downloads.contenders import HaulageExport
from bench.report import Figure
from dev.local import LocalInstallation

GREEDY_EXPORTS = 10
GREEDY_SOURCE = "rows=1000000&delay_ms=100"
SMALL_ROWS = 10_000
RUNS = 5
POLL_SECONDS = 0.1


async def measure_fairness(running: LocalInstallation, seed: int) -> list[Figure]:
    """The small export alone, and beside the others, which all workers together cannot serve at once."""
    url = f"{running.source}/rows?rows={SMALL_ROWS}&seed={seed}"
    async with aiohttp.ClientSession(base_url=running.api) as modest:
        ours = await HaulageExport.register(running, modest)
        alone = await _median_seconds(ours, url)
        async with _run_greedy_export(running):
            beside = await _median_seconds(ours, url)
    how = f"{SMALL_ROWS:,} rows, from the request to its end, median of {RUNS}"
    return [
        Figure("a small export alone", alone, "s", how),
        Figure(f"the same beside {GREEDY_EXPORTS} endless ones of another project", beside, "s", how),
    ]


async def _median_seconds(ours: HaulageExport, url: str) -> float:
    with TemporaryDirectory() as folder:
        runs = [await ours.run(url, SMALL_ROWS, Path(folder)) for _ in range(RUNS)]
    return median(run.seconds for run in runs)


@asynccontextmanager
async def _run_greedy_export(running: LocalInstallation) -> AsyncIterator[None]:
    """A project whose fetchers fill every place and queue for more."""
    async with aiohttp.ClientSession(base_url=running.api, raise_for_status=True) as session:
        await HaulageExport.register(running, session)
        request = {"source_url": f"{running.source}/rows?{GREEDY_SOURCE}", "page_size": 100}
        started = [await _answer(session.post("/v1/downloads", json=request)) for _ in range(GREEDY_EXPORTS)]
        paths = [f"/v1/downloads/{each['task_id']}" for each in started]
        async for _ in _repeat_every(POLL_SECONDS):
            if all([(await _answer(session.get(path)))["phase"] == "fetching" for path in paths]):
                break
        yield
        for path in paths:
            await _answer(session.post(f"{path}/cancel"))


async def _repeat_every(seconds: float) -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(seconds)


async def _answer(request: Any) -> dict[str, Any]:
    async with request as answer:
        body: dict[str, Any] = await answer.json()
        return body
