"""The data folder of an installation: its lock, and `run.json` with the processes that run there."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from dev.embedded.processes import Announce, RecordedProcess, announce_by_log
from domain import VERSION, faults
from infra import log

DATABASE, STORE, ENGINE = "database", "store", "engine"
"""The components that keep data, each in a folder of its name."""
CLUSTER = "cluster"
"""PostgreSQL's own folder, in that of the database."""
POSTGRES_MAJOR = "18"
"""A folder that another major version of PostgreSQL made cannot be read by this one."""
FREE_MIN_BYTES = 200_000_000
"""An empty installation takes 60 MB, and PostgreSQL's log of changes grows by 16 MB at a time."""
RUN_FILE = "run.json"
VERSION_FILE = "version"
RESTORE_FILE = "restore-unfinished"
GRACE_SECONDS = 5.0
"""How long processes that a killed supervisor left may take to end."""
POLL_SECONDS = 0.02

_log = log.get(__name__)


def create_data_folder(folder: Path) -> Path:
    """Create a data folder unless it exists; return its absolute path."""
    # Other users of the machine must not read what PostgreSQL and the store write there.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.absolute()


def replace_private_file(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, whole or not at all, also in a power failure."""
    # Of this process alone: two commands may write the same file.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def require_free_disk_space(data_dir: Path) -> None:
    """Raise Conflict if a start could fill the disk: components that cannot write end at once, without a sentence."""
    free = shutil.disk_usage(data_dir).free
    if free < FREE_MIN_BYTES:
        needed = f"{FREE_MIN_BYTES // 1_000_000} MB"
        raise faults.Conflict(
            "disk_full",
            f"The disk of {data_dir} has {free // 1_000_000} MB free, and a start needs {needed}.",
            "Free some space, or name a folder on another disk by HAULAGE_DATA_DIR.",
        )


def has_data(data_dir: Path) -> bool:
    """Return whether a component has kept anything in the folder."""
    return any(any((data_dir / name).glob("*")) for name in (DATABASE, STORE, ENGINE))


def require_no_data_of_other_versions(data_dir: Path) -> None:
    """Raise Conflict if a newer Haulage or another PostgreSQL has used a folder: no component may start on its data."""
    kept = _read_line(data_dir / VERSION_FILE)
    if _parse_minor_release(kept) > _parse_minor_release(VERSION):
        raise faults.Conflict(
            "data_folder_newer",
            f"{data_dir} has been used by Haulage {kept}, and this is the older {VERSION}.",
            "Start that version or a newer one, or name another folder by HAULAGE_DATA_DIR.",
        )
    major = _read_line(data_dir / DATABASE / CLUSTER / "PG_VERSION")
    if major and major != POSTGRES_MAJOR:
        raise faults.Conflict(
            "database_of_other_version",
            f"The database in {data_dir} is of PostgreSQL {major}, and Haulage {VERSION} has {POSTGRES_MAJOR}.",
            "Start the version of Haulage that made it, or name another folder by HAULAGE_DATA_DIR.",
        )


def record_version(data_dir: Path) -> None:
    """Write into a data folder which version is about to start on it."""
    path = data_dir / VERSION_FILE
    if _read_line(path) != VERSION:
        replace_private_file(path, f"{VERSION}\n")


def _read_line(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _parse_minor_release(version: str) -> list[int]:
    """Return the numbers that compare releases; patch releases of one minor release use the same data."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def begin_restore_into(data_dir: Path) -> None:
    """Mark a data folder: until its restore has ended, no installation starts on what is in it."""
    replace_private_file(data_dir / RESTORE_FILE, "A restore into this folder has not ended.\n")


def end_restore_into(data_dir: Path) -> None:
    """Remove the mark of a data folder whose restore has ended."""
    (data_dir / RESTORE_FILE).unlink()


def require_no_unfinished_restore(data_dir: Path) -> None:
    """Raise Conflict if a restore into a data folder broke off: engine and database may be of different moments."""
    if (data_dir / RESTORE_FILE).exists():
        raise faults.Conflict(
            "restore_unfinished",
            f"A restore into {data_dir} was broken off, or is under way.",
            "Remove the folder, and restore into a new one that has secrets.json alone.",
        )


class RunFileContent(BaseModel):
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
            self.state = _parse_run_state(path)
        except ValueError:
            self.state = RunFileContent()
            self.damage = f"{path} is damaged: ports are chosen anew, and the file is written again. No data is in it."

    def save(self) -> None:
        """Replace the file by a rename, so that a reader never sees half of it.

        Where it cannot be written, as on a full disk, it stays as it was: what runs goes on and can be stopped.
        """
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(self.state.model_dump_json(indent=2))
            draft.replace(self._path)
        except FileNotFoundError:
            return  # the folder was removed: there is nothing left to find again
        except OSError as error:
            _log.warning("run_record_not_written", path=str(self._path), reason=str(error))

    def save_process(self, name: str, recorded: RecordedProcess | None) -> None:
        """Record that a process was started, or that it has ended (None)."""
        self.state.parts.pop(name, None)
        if recorded:
            self.state.parts[name] = recorded
        self.save()

    def save_ready_seconds(self, name: str, seconds: float) -> None:
        """Record how long a process took until it served."""
        self.state.parts[name].ready_seconds = seconds
        self.save()

    async def end_leftover_processes_and_clear_recorded_parts(self, announce: Announce = announce_by_log) -> None:
        """End the processes of a supervisor that was killed, but not other processes that have their pids now."""
        left = {name: recorded for name, recorded in self.state.parts.items() if recorded.is_running}
        if left:
            announce(f"{', '.join(left)}: still running without their supervisor, and ended")
        for recorded in left.values():
            recorded.send_signal(recorded.death_signal)
        deadline = time.monotonic() + GRACE_SECONDS
        while any(recorded.is_running for recorded in left.values()):
            if time.monotonic() > deadline:
                for recorded in left.values():
                    if recorded.is_running:
                        recorded.send_signal(signal.SIGKILL)
            await asyncio.sleep(POLL_SECONDS)
        self.state.parts = {}


def read_run_state(path: Path) -> RunFileContent:
    """Return the state of the last run; an empty one if there was none, or its file is damaged."""
    try:
        return _parse_run_state(path)
    except ValueError:
        return RunFileContent()


def _parse_run_state(path: Path) -> RunFileContent:
    """Return the state of the last run, empty if there was none; raise ValueError if the file is damaged."""
    return RunFileContent.model_validate_json(path.read_text()) if path.exists() else RunFileContent()


@contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[RunFile]:
    """Lock a data folder for this process; the lock ends with the process, however it ends."""
    path = data_dir / RUN_FILE
    # A file of its own: `run.json` is replaced at every change, and a lock belongs to the file that was replaced.
    with (data_dir / "run.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _build_folder_in_use_fault(read_run_state(path), data_dir) from None
        run_file = RunFile(path)
        yield run_file
        run_file.state.supervisor = None
        run_file.save()


def record_supervisor(run_file: RunFile) -> None:
    """Record in `run.json` that this process owns the folder."""
    run_file.state.supervisor = RecordedProcess.from_pid(os.getpid())
    run_file.state.started = datetime.now(UTC)
    run_file.save()


def _build_folder_in_use_fault(run: RunFileContent, data_dir: Path) -> faults.Conflict:
    holder = f"process {run.supervisor.pid}" if run.supervisor else "another process"
    since = f" since {run.started:%Y-%m-%d %H:%M:%S} UTC" if run.started else ""
    return faults.Conflict(
        "data_folder_in_use",
        f"The folder {data_dir} is held by {holder}{since}.",
        "Stop that one first, or name another folder by HAULAGE_DATA_DIR.",
    )
