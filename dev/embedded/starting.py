"""Starting processes: for how long one has shown no sign of life, and one line about what takes long."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dev.embedded import processes
from infra import log

SLOW_SECONDS = 10.0
"""What takes longer is reported, and then as often as this."""
EXPLAINED_SECONDS = 60.0
"""From then on the line also says what the last probe found."""
IDLE_CPU_SECONDS = 0.25
"""Threads of a process that waits for ever use less than this within the time after which it is killed."""

Announce = Callable[[str], None]
"""Shows the user one line."""

_log = log.get(__name__)


def announce_by_log(line: str) -> None:
    """Log the line: where no command shows it to a user."""
    _log.warning("start_announced", sentence=line)


class SilenceTimer:
    """Measure for how long a process has neither written a line nor used processor time.

    A process that computes is alive, however slow the machine is.
    """

    def __init__(self, pid: int, output: Path) -> None:
        self._pid = pid
        self._output = output
        self._written = self._cpu_seconds = 0.0
        self._since = time.monotonic()

    def read_seconds(self) -> float:
        """Return how long ago the last sign of life was seen."""
        written = self._output.stat().st_size if self._output.exists() else 0
        cpu_seconds = processes.read_cpu_seconds(self._pid)
        if written != self._written or cpu_seconds - self._cpu_seconds >= IDLE_CPU_SECONDS:
            self._written, self._cpu_seconds = written, cpu_seconds
            self._since = time.monotonic()
        return time.monotonic() - self._since


@dataclass
class StartStep:
    """What a component does until it serves, since when, and what the last probe found."""

    name: str
    action: str
    since: float
    obstacle: str = ""


@dataclass
class StartReport:
    """Report every ten seconds, in one line, what has been starting for longer than that.

    Args:
        announce: Gets the line.
    """

    announce: Announce = announce_by_log
    _steps: list[StartStep] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, action: str) -> Iterator[StartStep]:
        """Count a component as starting while the block runs; `action` says what it does, like `importing`."""
        step = StartStep(name, action, time.monotonic())
        self._steps.append(step)
        try:
            yield step
        finally:
            self._steps.remove(step)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(SLOW_SECONDS)
            if line := self.describe():
                self.announce(line)

    def describe(self) -> str:
        """Return the line, like `api-1, api-2: still importing, 34 s`; empty if nothing takes long."""
        now = time.monotonic()
        slow: defaultdict[str, list[str]] = defaultdict(list)
        for step in self._steps:
            if (age := now - step.since) >= SLOW_SECONDS:
                why = f" ({step.obstacle})" if step.obstacle and age >= EXPLAINED_SECONDS else ""
                slow[f"still {step.action}, {age:.0f} s{why}"].append(step.name)
        return "; ".join(f"{', '.join(names)}: {state}" for state, names in slow.items())
