"""Processor: seconds of processes, and how much other programs used while something was measured."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import psutil


def sum_cpu_seconds(root: psutil.Process) -> float:
    """Return processor seconds of a process and of its children, also of those that have ended."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


@dataclass(frozen=True)
class ProcessorReading:
    """Seconds by the clock, processor seconds of the whole machine, and those of this process and what it started."""

    clock: float
    machine: float
    own: float

    @classmethod
    def take(cls) -> ProcessorReading:
        """Read all three now."""
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq
        return cls(time.monotonic(), busy, sum_cpu_seconds(psutil.Process()))

    def count_cores_of_others_until(self, end: ProcessorReading) -> float:
        """Return how many cores other programs used on average."""
        others = (end.machine - self.machine) - (end.own - self.own)
        return max(0.0, others / (end.clock - self.clock))
