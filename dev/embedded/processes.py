"""Processes: how a child dies with its parent, which pid is whose, signs of life, and what takes long to start."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from domain import faults
from infra import log

ROOT = Path(__file__).parents[2]
"""Where the modules of all processes are."""
INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
NOBODY_ID = 65534

SLOW_SECONDS = 10.0
"""What takes longer is reported, and then as often as this."""
EXPLAINED_SECONDS = 60.0
"""From then on the line also says what the last probe found."""
LOG_MAX_BYTES = 8 * 1024 * 1024
LAST_LINES_BYTES = 2_000
IDLE_CPU_SECONDS = 0.25
"""Threads of a process that waits for ever use less than this within the time after which it is killed."""

Announce = Callable[[str], None]
"""Shows the user one line."""

_log = log.get(__name__)


def announce_by_log(line: str) -> None:
    """Log the line: where no command shows it to a user."""
    _log.warning("component_announced", sentence=line)


def collect_inherited_variables() -> dict[str, str]:
    """Return the variables that a started process gets from this one."""
    return {**{key: os.environ[key] for key in INHERITED if key in os.environ}, "PYTHONPATH": str(ROOT)}


class RecordedProcess(BaseModel):
    """A process that is recognised even if its pid is used again."""

    pid: int
    identity: str
    death_signal: int = signal.SIGKILL
    ready_seconds: float = 0.0
    """How long it took from its start until it served; 0 until then."""

    @classmethod
    def from_pid(cls, pid: int, death_signal: int = signal.SIGKILL) -> Self:
        """Return the record of a running process."""
        return cls(pid=pid, identity=read_process_identity(pid) or "gone", death_signal=death_signal)

    @property
    def is_running(self) -> bool:
        """Whether the process still runs."""
        return read_process_identity(self.pid) == self.identity

    def send_signal(self, number: int) -> None:
        """Send a signal; do nothing if the process is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def read_process_identity(pid: int) -> str | None:
    """Return what distinguishes a process from a later one with its pid: its start time. None if it is gone."""
    if not BOOT_ID.exists():
        return _read_identity_by_ps(pid)
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; after it come the state and, as 18th and 20th, threads and start time.
    state, *fields = stat.rpartition(")")[2].split()
    threads, started = int(fields[16]), fields[18]
    # While other threads are still ending, a dead main thread may have open sockets.
    is_gone = state in "ZX" and threads <= 1
    return None if is_gone else f"{BOOT_ID.read_text().strip()}/{started}"


def read_command(pid: int) -> str:
    """Return the command line of a process; empty if it is gone."""
    answer = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return answer.stdout.strip()


def read_cpu_seconds(pid: int) -> float:
    """Return the processor seconds that a process and its children have used; 0 once it is gone."""
    if not BOOT_ID.exists():
        return _read_cpu_seconds_by_ps(pid)
    try:
        stat = (PROC / str(pid) / "stat").read_text()
        children = (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # From the 12th field after the name: of the process in user and system mode, then of its children that have ended.
    ticks = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(read_cpu_seconds(int(child)) for child in children)


def measure_load_per_core_at_least_one() -> float:
    """Return how many processes wish to run for each core that this one may use; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1.0, os.getloadavg()[0] / cores)


def _read_cpu_seconds_by_ps(pid: int) -> float:
    answer = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    seconds = 0.0
    for number in re.findall(r"[\d.]+", answer.stdout.replace(",", ".")):
        seconds = seconds * 60 + float(number)
    return seconds


def _read_identity_by_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return answer.stdout.strip() or None


def wrap_with_death_signal(argv: list[str], death_signal: signal.Signals) -> list[str]:
    """Return the command so that the kernel sends it a signal when its parent dies; unchanged where it cannot.

    The parent is the thread that starts the child, so that thread must live as long as the child.
    """
    if setpriv := _find_setpriv():
        return [setpriv, "--pdeathsig", _get_signal_name_without_sig_prefix(death_signal), "--", *argv]
    return argv


def wrap_as_nobody_if_root(argv: list[str], death_signal: signal.Signals) -> list[str]:
    """Return the command so that it runs as nobody, for programs that refuse root; unchanged unless we are root.

    CAP_DAC_OVERRIDE lets it reach programs and data below folders that only root may enter. access(2) would ignore
    it without no_setuid_fixup, and initdb uses access(2). A change of credentials clears the parent-death signal, so it
    is set again here.
    """
    if os.geteuid() != 0:
        return argv
    setpriv = _find_setpriv()
    if setpriv is None:
        raise faults.Missing(
            "program_missing",
            "PostgreSQL does not run as root, and the program `setpriv` was not found.",
            "Install util-linux, or use another user.",
        )
    capabilities = "-all,+dac_override"
    return [
        setpriv,
        f"--reuid={NOBODY_ID}",
        f"--regid={NOBODY_ID}",
        "--clear-groups",
        f"--inh-caps={capabilities}",
        f"--ambient-caps={capabilities}",
        f"--bounding-set={capabilities}",
        "--securebits=+no_setuid_fixup",
        f"--pdeathsig={_get_signal_name_without_sig_prefix(death_signal)}",
        "--",
        *argv,
    ]


def _get_signal_name_without_sig_prefix(number: signal.Signals) -> str:
    return number.name.removeprefix("SIG")


@cache
def _find_setpriv() -> str | None:
    """Return `setpriv` of util-linux; that of BusyBox has no parent-death signal."""
    found = shutil.which("setpriv")
    if found is None:
        return None
    works = subprocess.run([found, "--pdeathsig", "KILL", "--", found, "--version"], capture_output=True, check=False)
    return found if works.returncode == 0 else None


class SilenceTimer:
    """Measure for how long a process has neither written a line nor used processor time.

    A process that computes is alive, however slow the machine is.
    """

    def __init__(self, pid: int, output: Path) -> None:
        self._pid = pid
        self._output = output
        self._written = self._cpu_seconds = 0.0
        self._since = time.monotonic()

    def measure_silence(self) -> float:
        """Return how long ago the last sign of life was seen."""
        written = self._output.stat().st_size if self._output.exists() else 0
        cpu_seconds = read_cpu_seconds(self._pid)
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
class StartReporter:
    """Report every ten seconds, in one line, what has been starting for longer than that.

    Args:
        announce: Gets the line, and others about what becomes of components.
    """

    announce: Announce = announce_by_log
    _steps: list[StartStep] = field(default_factory=list)

    @contextmanager
    def track_step(self, name: str, action: str) -> Iterator[StartStep]:
        """Count a component as starting while the block runs; `action` says what it does, like `importing`."""
        step = StartStep(name, action, time.monotonic())
        self._steps.append(step)
        try:
            yield step
        finally:
            self._steps.remove(step)

    async def report_until_cancelled(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(SLOW_SECONDS)
            if line := self.describe_slow_steps():
                self.announce(line)

    def describe_slow_steps(self) -> str:
        """Return the line, like `api-1, api-2: still importing, 34 s`; empty if nothing takes long."""
        now = time.monotonic()
        slow: defaultdict[str, list[str]] = defaultdict(list)
        for step in self._steps:
            if (age := now - step.since) >= SLOW_SECONDS:
                why = f" ({step.obstacle})" if step.obstacle and age >= EXPLAINED_SECONDS else ""
                slow[f"still {step.action}, {age:.0f} s{why}"].append(step.name)
        return "; ".join(f"{', '.join(names)}: {state}" for state, names in slow.items())


class ProcessLog:
    """The file of a process's output, and beside it the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make_folder_and_shorten(self) -> Path:
        """Return the file, ready for a process that writes at its end."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rotate_if_long()
        return self.path

    def rotate_if_long(self) -> None:
        """Copy a long file to that of the earlier output, and empty it; a process that writes at its end goes on."""
        with suppress(OSError):  # one that is not there, or is being removed, needs nothing
            if self.path.stat().st_size <= LOG_MAX_BYTES:
                return
            with suppress(OSError):  # on a full disk the new output counts more than the old
                shutil.copyfile(self.path, self.path.with_suffix(".log.1"))
            os.truncate(self.path, 0)

    def read_last_lines(self) -> str:
        """Return the end of the output; empty if there is none."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as output:
            output.seek(max(0, self.path.stat().st_size - LAST_LINES_BYTES))
            return output.read().decode(errors="replace")
