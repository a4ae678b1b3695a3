"""The record of a run: `run.json` says what runs where, `run.lock` lets one supervisor at a time own a data folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ValidationError

from dev.embedded import processes
from domain import faults
from infra import log

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.02

_log = log.get(__name__)


class Recorded(BaseModel):
    """A process, recognisable beyond the reuse of its pid."""

    pid: int
    identity: str
    death_signal: int = signal.SIGKILL

    @classmethod
    def of(cls, pid: int, death_signal: int = signal.SIGKILL) -> Self:
        """Record a process that runs now."""
        return cls(pid=pid, identity=processes.identity(pid) or "gone", death_signal=death_signal)

    @property
    def runs(self) -> bool:
        """Whether that very process is still there."""
        return processes.identity(self.pid) == self.identity

    def send(self, number: int) -> None:
        """Send a signal; a process that is gone does not mind."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Run(BaseModel):
    """What `run.json` holds. Ports and addresses outlive the run: the next one takes the same when they are free."""

    supervisor: Recorded | None = None
    started: datetime | None = None
    parts: dict[str, Recorded] = {}
    ports: dict[str, int] = {}
    addresses: dict[str, str] = {}


class Record:
    """`run.json`, written anew at every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.run = read(path)

    def save(self) -> None:
        """Replace the file at once, so that a reader never sees half of it."""
        draft = self._path.with_suffix(".new")
        draft.write_text(self.run.model_dump_json(indent=2))
        draft.replace(self._path)

    def note(self, name: str, recorded: Recorded | None) -> None:
        """A part was started, or is gone."""
        self.run.parts.pop(name, None)
        if recorded:
            self.run.parts[name] = recorded
        self.save()

    async def sweep(self) -> None:
        """End what a killed supervisor left behind. A pid that belongs to somebody else by now is not touched."""
        left = {name: recorded for name, recorded in self.run.parts.items() if recorded.runs}
        for name, recorded in left.items():
            _log.warning("leftover_ended", part=name, pid=recorded.pid)
            recorded.send(recorded.death_signal)
        deadline = time.monotonic() + GRACE_SECONDS
        while any(recorded.runs for recorded in left.values()):
            if time.monotonic() > deadline:
                for recorded in left.values():
                    if recorded.runs:
                        recorded.send(signal.SIGKILL)
            await asyncio.sleep(POLL_SECONDS)
        self.run.parts = {}


def read(path: Path) -> Run:
    """The last run; an empty one when there was none, or when a power cut left half a file, and no process."""
    try:
        return Run.model_validate_json(path.read_text())
    except FileNotFoundError:
        return Run()
    except ValidationError:
        _log.warning("run_record_unreadable", path=str(path))
        return Run()


@contextmanager
def held(data_dir: Path) -> Iterator[Record]:
    """Own a data folder. The lock goes with the process, however it ends."""
    path = data_dir / "run.json"
    with (data_dir / "run.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held_by(read(path), data_dir) from None
        record = Record(path)
        yield record
        record.run.supervisor = None
        record.save()


def announce(record: Record) -> None:
    """Say in `run.json` who owns the folder now."""
    record.run.supervisor = Recorded.of(os.getpid())
    record.run.started = datetime.now(UTC)
    record.save()


def _held_by(run: Run, data_dir: Path) -> faults.Conflict:
    holder = f"process {run.supervisor.pid}" if run.supervisor else "another process"
    since = f" since {run.started:%Y-%m-%d %H:%M:%S} UTC" if run.started else ""
    return faults.Conflict(
        "data_folder_in_use",
        f"The folder {data_dir} is held by {holder}{since}.",
        "Stop that one first, or name another folder by HAULAGE_DATA_DIR.",
    )
