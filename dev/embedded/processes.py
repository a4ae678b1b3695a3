"""Processes: how a child dies with its parent, which pid is whose, and `run.json`, which records what runs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from domain import faults
from infra import log

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.02

_log = log.get(__name__)
PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
NOBODY_ID = 65534


class RecordedProcess(BaseModel):
    """A process that is recognised even if its pid is used again."""

    pid: int
    identity: str
    death_signal: int = signal.SIGKILL

    @classmethod
    def from_pid(cls, pid: int, death_signal: int = signal.SIGKILL) -> Self:
        """Return the record of a running process."""
        return cls(pid=pid, identity=read_identity(pid) or "gone", death_signal=death_signal)

    @property
    def is_running(self) -> bool:
        """Whether the process still runs."""
        return read_identity(self.pid) == self.identity

    def send_signal(self, number: int) -> None:
        """Send a signal; do nothing if the process is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class RunState(BaseModel):
    """The content of `run.json`. The next run takes the same ports and addresses if they are free."""

    supervisor: RecordedProcess | None = None
    started: datetime | None = None
    parts: dict[str, RecordedProcess] = {}
    ports: dict[str, int] = {}
    addresses: dict[str, str] = {}


class RunFile:
    """`run.json`, which is written again at every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damage = ""
        """A sentence for the user if the file could not be read; the state is empty then."""
        try:
            self.state = _parse_run(path)
        except ValueError:
            self.state = RunState()
            self.damage = f"{path} is damaged: ports are chosen anew, and the file is written again. No data is in it."

    def save(self) -> None:
        """Replace the file by a rename, so that a reader never sees half of it.

        Where it cannot be written, as on a full disk, it stays as it was: what runs goes on and can be stopped.
        """
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(self.state.model_dump_json(indent=2))
            draft.replace(self._path)
        except OSError as error:
            _log.warning("run_record_not_written", path=str(self._path), reason=str(error))

    def record_process(self, name: str, recorded: RecordedProcess | None) -> None:
        """Record that a process was started, or that it has ended (None)."""
        self.state.parts.pop(name, None)
        if recorded:
            self.state.parts[name] = recorded
        self.save()

    async def end_leftovers(self) -> None:
        """End the processes of a supervisor that was killed, but not other processes that have their pids now."""
        left = {name: recorded for name, recorded in self.state.parts.items() if recorded.is_running}
        for name, recorded in left.items():
            _log.warning("leftover_process_ended", component=name, pid=recorded.pid)
            recorded.send_signal(recorded.death_signal)
        deadline = time.monotonic() + GRACE_SECONDS
        while any(recorded.is_running for recorded in left.values()):
            if time.monotonic() > deadline:
                for recorded in left.values():
                    if recorded.is_running:
                        recorded.send_signal(signal.SIGKILL)
            await asyncio.sleep(POLL_SECONDS)
        self.state.parts = {}


def read_run(path: Path) -> RunState:
    """Return the state of the last run; an empty one if there was none, or its file is damaged."""
    try:
        return _parse_run(path)
    except ValueError:
        return RunState()


def _parse_run(path: Path) -> RunState:
    """Return the state of the last run, empty if there was none; raise ValueError if the file is damaged."""
    return RunState.model_validate_json(path.read_text()) if path.exists() else RunState()


@contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[RunFile]:
    """Lock a data folder for this process; the lock ends with the process, however it ends."""
    path = data_dir / "run.json"
    with (data_dir / "run.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _build_conflict(read_run(path), data_dir) from None
        run_file = RunFile(path)
        yield run_file
        run_file.state.supervisor = None
        run_file.save()


def record_supervisor(run_file: RunFile) -> None:
    """Record in `run.json` that this process owns the folder."""
    run_file.state.supervisor = RecordedProcess.from_pid(os.getpid())
    run_file.state.started = datetime.now(UTC)
    run_file.save()


def _build_conflict(run: RunState, data_dir: Path) -> faults.Conflict:
    holder = f"process {run.supervisor.pid}" if run.supervisor else "another process"
    since = f" since {run.started:%Y-%m-%d %H:%M:%S} UTC" if run.started else ""
    return faults.Conflict(
        "data_folder_in_use",
        f"The folder {data_dir} is held by {holder}{since}.",
        "Stop that one first, or name another folder by HAULAGE_DATA_DIR.",
    )


def read_identity(pid: int) -> str | None:
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


def measure_load() -> float:
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
        return [setpriv, "--pdeathsig", _name(death_signal), "--", *argv]
    return argv


def wrap_unprivileged(argv: list[str], death_signal: signal.Signals) -> list[str]:
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
        f"--pdeathsig={_name(death_signal)}",
        "--",
        *argv,
    ]


def _name(number: signal.Signals) -> str:
    return number.name.removeprefix("SIG")


@cache
def _find_setpriv() -> str | None:
    """Return `setpriv` of util-linux; that of BusyBox has no parent-death signal."""
    found = shutil.which("setpriv")
    if found is None:
        return None
    works = subprocess.run([found, "--pdeathsig", "KILL", "--", found, "--version"], capture_output=True, check=False)
    return found if works.returncode == 0 else None
