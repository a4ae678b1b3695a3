"""What a peer's run took: wall clock, processor and memory, printed as one JSON line."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")


@contextmanager
def metered() -> Iterator[None]:
    """Measure the body: the start of the interpreter and the imports are not held against a peer."""
    wall, processor = time.perf_counter(), _processor_seconds()
    yield
    took = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": _processor_seconds() - processor,
        "peak_mb": _peak_bytes() / 1024**2,
    }
    print(json.dumps(took))


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_bytes() -> int:
    """Of the largest process, this one or a child."""
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
