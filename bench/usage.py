"""Usage: processor seconds of each process of an installation, and the peak of its resident memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from bench.processor import sum_cpu_seconds
from bench.report import Figure
from dev.embedded import components
from dev.local import LocalInstallation, list_api_names, list_worker_names

SAMPLE_SECONDS = 0.05
SOURCE = "source"
STAND_INS = "stand-ins"
"""The process of the source."""
LARGEST_MAX_MB: Final = 400.0
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


def read_largest_process_mb(running: LocalInstallation) -> float:
    """Return the most resident memory that an API or worker process has ever had, by the kernel's own mark."""
    pids = running.stack.list_pids()
    return max(_read_peak_mb(pids[name]) for name in list_own_processes())


def build_largest_process_figure(megabytes: Sequence[float]) -> Figure:
    """Return the figure that every system's record has, from the largest process of each installation."""
    peak = max(megabytes)
    how = "resident memory of API and workers, the highest that the kernel saw from their start to the end of the bench"
    return Figure(
        "largest process of ours", peak, "MB", how, f"≤ {LARGEST_MAX_MB:.0f}", peak <= LARGEST_MAX_MB
    )  # fmt: skip


def _read_peak_mb(pid: int) -> float:
    """Return the peak of a process and of its children that run."""
    process = psutil.Process(pid)
    peaks = []
    for each in (process, *process.children(recursive=True)):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{each.pid}/status").read_text().splitlines()
            peaks += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")]
    return max(peaks)


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
