"""How much memory the processes of a deployment have, looked at while something goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

from dev.local import list_api_names, list_worker_names
from tests.support.deployment import Deployment

SAMPLE_SECONDS = 0.2


@dataclass
class Memory:
    """What processes had at most while it was looked."""

    peaks: dict[str, int] = field(default_factory=dict)
    samples: int = 0


def resident_bytes(deployment: Deployment, name: str) -> int:
    """What a process has in memory now."""
    used: int = psutil.Process(deployment.pids[name]).memory_info().rss
    return used


@asynccontextmanager
async def watching(deployment: Deployment) -> AsyncIterator[Memory]:
    """Sample the memory of all processes of Haulage while the body runs; a failed sample fails the test."""
    memory = Memory()

    async def sample_all() -> None:
        while True:
            for name in (*list_api_names(), *list_worker_names()):
                memory.peaks[name] = max(memory.peaks.get(name, 0), resident_bytes(deployment, name))
            memory.samples += 1
            await asyncio.sleep(SAMPLE_SECONDS)

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sample_all())
        yield memory
        sampling.cancel()
