"""Meter: wall clock, processor time and memory of a peer's run, printed as one JSON line."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

STATUS = Path("/proc/self/status")
Item = TypeVar("Item")


class Meter:
    """Measures one run."""

    def __init__(self) -> None:
        self._wall, self._processor = _now()

    def exclude(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items without counting the time that producing them takes."""
        iterator = iter(items)
        while True:
            wall, processor = _now()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                wall_now, processor_now = _now()
                self._wall += wall_now - wall
                self._processor += processor_now - processor
            yield item

    def read(self) -> dict[str, float]:
        """Return what was used until now."""
        wall, processor = _now()
        return {
            "seconds": wall - self._wall,
            "cpu_seconds": processor - self._processor,
            "peak_mb": _peak_bytes() / 1024**2,
        }


@contextmanager
def measure_run() -> Iterator[Meter]:
    """Measure the body; the start of the interpreter and imports are not counted."""
    meter = Meter()
    yield meter
    print(json.dumps(meter.read()))


def _now() -> tuple[float, float]:
    return time.perf_counter(), _processor_seconds()


def _processor_seconds() -> float:
    """Return processor seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_bytes() -> int:
    """Return the memory of the largest process, this one or a child."""
    unit = 1 if sys.platform == "darwin" else 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    return max(_own_peak_bytes(unit), children)


def _own_peak_bytes(unit: int) -> int:
    """Linux counts what the parent used before exec into ru_maxrss, but not into VmHWM."""
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
