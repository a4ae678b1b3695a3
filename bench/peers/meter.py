"""What a peer's run took: wall clock, processor and memory, printed as one JSON line."""

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
    """The clocks of one run."""

    def __init__(self) -> None:
        self._wall, self._processor = _now()

    def free(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, whose making is not held against the peer."""
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

    def took(self) -> dict[str, float]:
        """Until now."""
        wall, processor = _now()
        return {
            "seconds": wall - self._wall,
            "cpu_seconds": processor - self._processor,
            "peak_mb": _peak_bytes() / 1024**2,
        }


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure the body: the start of the interpreter and the imports are not held against a peer."""
    meter = Meter()
    yield meter
    print(json.dumps(meter.took()))


def _now() -> tuple[float, float]:
    return time.perf_counter(), _processor_seconds()


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
