"""What the processes of a running house use: processor seconds by part, and the largest resident memory meanwhile."""

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
SERVING = (components.ENGINE, components.DATABASE, components.STORE)


def ours() -> tuple[str, ...]:
    """The processes that run our code."""
    return (*list_api_names(), *list_worker_names())


@dataclass
class Use:
    """What the parts used while something ran; complete when that has ended."""

    cpu_seconds: dict[str, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def own_cpu_seconds(self) -> float:
        """Of the processes that run our code."""
        return sum(self.cpu_seconds[name] for name in ours())

    @property
    def own_peak_bytes(self) -> int:
        """Of the largest process that runs our code."""
        return max(self.peak_bytes[name] for name in ours())


@asynccontextmanager
async def used(running: LocalInstallation) -> AsyncIterator[Use]:
    """Watch the house while the body runs."""
    use = Use()
    before = _cpu_seconds(running)
    sampling = asyncio.create_task(_sample(running, use))
    try:
        yield use
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        after = _cpu_seconds(running)
        use.cpu_seconds = {name: after[name] - before[name] for name in before}


async def _sample(running: LocalInstallation, use: Use) -> None:
    processes = {name: psutil.Process(pid) for name, pid in running.stack.list_pids().items() if name in ours()}
    while True:
        for name, process in processes.items():
            use.peak_bytes[name] = max(use.peak_bytes.get(name, 0), process.memory_info().rss)
        await asyncio.sleep(SAMPLE_SECONDS)


def _cpu_seconds(running: LocalInstallation) -> Mapping[str, float]:
    return {name: tree_cpu_seconds(psutil.Process(pid)) for name, pid in running.stack.list_pids().items()}


def tree_cpu_seconds(root: psutil.Process) -> float:
    """Of a process, of its children that run, and of those that have ended and were waited for."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
