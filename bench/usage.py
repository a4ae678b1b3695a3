"""Usage: processor seconds of each process of an installation, and the peak of its resident memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import psutil

from dev.embedded import components
from dev.local import LocalInstallation, list_api_names, list_worker_names

SAMPLE_SECONDS = 0.05
SOURCE = "source"
STAND_INS = "stand-ins"
"""The process of the source."""
SERVING = (components.ENGINE, components.DATABASE, components.STORE)


def list_own_processes() -> tuple[str, ...]:
    """Return the processes that run Haulage."""
    return (*list_api_names(), *list_worker_names())


@dataclass
class Usage:
    """Processor time and memory of processes while something ran; complete when it has ended."""

    cpu_seconds: dict[str, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def own_cpu_seconds(self) -> float:
        """Of the processes that run Haulage."""
        return sum(self.cpu_seconds[name] for name in list_own_processes())

    @property
    def own_peak_bytes(self) -> int:
        """Of the largest process that runs Haulage."""
        return max(self.peak_bytes[name] for name in list_own_processes())


@asynccontextmanager
async def measure_usage(running: LocalInstallation) -> AsyncIterator[Usage]:
    """Measure the processes of an installation while the body runs."""
    usage = Usage()
    before = _cpu_seconds(running)
    sampling = asyncio.create_task(_sample(running, usage))
    try:
        yield usage
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        after = _cpu_seconds(running)
        usage.cpu_seconds = {name: after[name] - before[name] for name in before}


async def _sample(running: LocalInstallation, usage: Usage) -> None:
    processes = {
        name: psutil.Process(pid) for name, pid in running.stack.list_pids().items() if name in list_own_processes()
    }
    while True:
        for name, process in processes.items():
            usage.peak_bytes[name] = max(usage.peak_bytes.get(name, 0), process.memory_info().rss)
        await asyncio.sleep(SAMPLE_SECONDS)


def _cpu_seconds(running: LocalInstallation) -> Mapping[str, float]:
    return {name: sum_cpu_seconds(psutil.Process(pid)) for name, pid in running.stack.list_pids().items()}


def sum_cpu_seconds(root: psutil.Process) -> float:
    """Return processor seconds of a process and of its children, also of those that have ended."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
