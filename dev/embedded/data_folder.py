"""What an installation holds on a machine: its data folder with `run.json` and secrets, and its ports."""

from __future__ import annotations

import asyncio
import base64
import errno
import fcntl
import os
import random
import secrets
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field

from dev.embedded.processes import Announce, RecordedProcess, announce_by_log
from domain import faults
from infra import log

DATABASE, STORE, ENGINE = "database", "store", "engine"
"""The components that keep data, each in a folder of its name."""
FREE_MIN_BYTES = 200_000_000
"""An empty installation takes 60 MB, and PostgreSQL's log of changes grows by 16 MB at a time."""
ENVIRONMENT_FILE = "environment"
SECRETS_FILE = "secrets.json"
MARKER_VARIABLE = "HAULAGE_DATABASE__URL"
"""Set wherever the environment names the components."""
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.02

LOOPBACK = "127.0.0.1"
# Below the ephemeral ranges of Linux and macOS: an outgoing connection of any program could take a port from them
# while its component restarts, and a client that keeps connecting to it may even connect to itself.
RANGE = range(20_000, 32_000)

_log = log.get(__name__)


def create_data_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.absolute()


def require_free_disk_space(data_dir: Path) -> None:
    free = shutil.disk_usage(data_dir).free
    if free < FREE_MIN_BYTES:
        needed = f"{FREE_MIN_BYTES // 1_000_000} MB"
        raise faults.Conflict(
            "disk_full",
            f"The disk of {data_dir} has {free // 1_000_000} MB free, and a start needs {needed}.",
            "Free some space, or name a folder on another disk by HAULAGE_DATA_DIR.",
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

    def record_process(self, name: str, recorded: RecordedProcess | None) -> None:
        """Record that a process was started, or that it has ended (None)."""
        self.state.parts.pop(name, None)
        if recorded:
            self.state.parts[name] = recorded
        self.save()

    def record_ready(self, name: str, seconds: float) -> None:
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
    path = data_dir / "run.json"
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


def _create_token() -> str:
    return secrets.token_urlsafe(24)


def _create_sealing_key() -> str:
    """Return a key of Fernet."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


class EmbeddedSecrets(BaseModel):
    """The secrets of an embedded installation: created once, kept in `secrets.json`, and replaced by a rotation."""

    database_password: str = Field(default_factory=_create_token)
    object_secret_key: str = Field(default_factory=_create_token)
    admin_key: str = Field(default_factory=_create_token)
    seal: str = Field(default_factory=_create_sealing_key)
    pepper: str = Field(default_factory=_create_token)
    old: dict[str, list[str]] = {}
    """What rotations replaced and data may still need, by the name of the secret, the newest first."""


SECRET_NAMES: Final = tuple(name for name in EmbeddedSecrets.model_fields if name != "old")
_NEEDED_AFTER_ROTATION: Final = ("database_password", "seal", "pepper")
"""PostgreSQL has the old password until it is started; the others open what was sealed and hashed under them."""


def load_or_create_secrets(data_dir: Path) -> EmbeddedSecrets:
    """Read `secrets.json` of a data folder; create and keep the secrets of a folder that has no data yet.

    Raises:
        Conflict: The file is damaged, or lacks a secret that the data of the folder were made with.
    """
    path = data_dir / SECRETS_FILE
    try:
        kept = path.read_text() if path.exists() else "{}"
        loaded = EmbeddedSecrets.model_validate_json(kept)
    except ValueError:
        raise _build_damage_fault(data_dir, f"{path} is damaged: it is not the JSON object that was written") from None
    absent = sorted(set(SECRET_NAMES) - loaded.model_fields_set)
    if absent and has_data(data_dir):
        what = f"{path} lacks {', '.join(absent)}" if path.exists() else f"{path} is missing"
        raise _build_damage_fault(data_dir, f"{what}, but {data_dir} has data that it belongs to")
    if absent:
        _write_secrets(path, loaded.model_dump_json(indent=2))
    return loaded


def rotate_secrets(data_dir: Path, names: Collection[str]) -> None:
    """Draw secrets of a folder anew; those that its data need are kept beside the new ones. Nothing may run there.

    Raises:
        Conflict: An installation runs in the folder, or the file is damaged.
        Missing: The folder has no secrets yet.
    """
    path = data_dir / SECRETS_FILE
    if not path.exists():
        raise faults.Missing(
            "secrets_missing", f"{path} does not exist.", "Name the folder of a `haulage up` by --data-dir."
        )
    with lock_data_dir(data_dir):
        before = load_or_create_secrets(data_dir)
        drawn = EmbeddedSecrets().model_dump(include=set(names))
        old = {
            name: [getattr(before, name), *before.old.get(name, [])] for name in _NEEDED_AFTER_ROTATION if name in drawn
        }
        rotated = before.model_copy(update={**drawn, "old": {**before.old, **old}})
        _write_secrets(path, rotated.model_dump_json(indent=2))


def remove_old_secrets(data_dir: Path, names: Collection[str]) -> None:
    """Remove what rotations replaced; processes that run keep it until they are started again."""
    loaded = load_or_create_secrets(data_dir)
    old = {name: values for name, values in loaded.old.items() if name not in names}
    _write_secrets(data_dir / SECRETS_FILE, loaded.model_copy(update={"old": old}).model_dump_json(indent=2))


def has_data(data_dir: Path) -> bool:
    """Return whether a component has kept anything in the folder."""
    return any(any((data_dir / name).glob("*")) for name in (DATABASE, STORE, ENGINE))


def _build_damage_fault(data_dir: Path, what: str) -> faults.Conflict:
    return faults.Conflict(
        "secrets_damaged",
        f"{what}.",
        "Restore the file from a backup: only its secrets open the database and sealed values, so none is drawn anew. "
        f"To begin anew and lose the data, remove {data_dir}.",
    )


def _write_secrets(path: Path, text: str) -> None:
    """Write under another name first: half a secrets file would make the data unreadable."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)


@contextmanager
def write_environment_file_while_running(data_dir: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Keep the variables, while the block runs, in a file that only its owner and their shell can read."""
    path = data_dir / ENVIRONMENT_FILE
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # the whole folder may have been removed


def set_environment_of_running_installation(data_dir: Path) -> bool:
    """Set the variables, unless this environment has its own or nothing runs there; return whether they were set."""
    path = data_dir / ENVIRONMENT_FILE
    supervisor = read_run_state(data_dir / "run.json").supervisor
    if MARKER_VARIABLE in os.environ or not path.exists() or supervisor is None or not supervisor.is_running:
        return False
    pairs = [shlex.split(line)[0].partition("=") for line in path.read_text().splitlines()]
    os.environ.update((name, value) for name, _, value in pairs)
    return True


def load_environment_and_describe(data_dir: Path) -> str:
    """Load the environment of a running `haulage up` if there is one; return which components are used."""
    if set_environment_of_running_installation(data_dir):
        return f"the components of the `haulage up` that runs in {data_dir}"
    if MARKER_VARIABLE in os.environ:
        return f"the components that the environment names ({MARKER_VARIABLE} is set)"
    return f"the environment's and default addresses, because no `haulage up` runs in {data_dir}"


class PortReservations:
    """Reserve ports, each for one supervisor of this user at a time.

    No process listens on a port before its component serves, nor while it restarts. A UDP socket on the same number
    keeps another supervisor from taking it at such a moment: it needs no file, and ends with the process.

    Args:
        remembered: The ports of the last run by name, used again where no other is preferred.
        locks: Closes the UDP sockets.
        announce: Gets a line about each preferred port that is taken.
    """

    def __init__(self, remembered: dict[str, int], locks: ExitStack, announce: Announce = announce_by_log) -> None:
        self._announce = announce
        self._remembered = remembered
        self._locks = locks
        self.by_name: dict[str, int] = {}

    def reserve(self, name: str, preferred: int = 0) -> int:
        """Reserve a port: the preferred one, or that of the last run, or any; the first that is free."""
        for port in self._iterate_candidate_ports(name, preferred):
            if port not in self.by_name.values() and is_port_free(port) and self._try_lock(port):
                self.by_name[name] = port
                if preferred not in (0, port):
                    self._announce(f"Port {preferred} is kept by another program: {name} uses {port} instead.")
                return port
        raise OSError(errno.EADDRINUSE, f"no port between {RANGE.start} and {RANGE.stop} is free for {name}")

    def _iterate_candidate_ports(self, name: str, preferred: int) -> Iterator[int]:
        if preferred:
            yield preferred
        if name in self._remembered:
            yield self._remembered[name]
        # Not shuffled: shuffling took longer than the rest of a claim, and a stack claims fifteen ports.
        first = random.randrange(len(RANGE))
        yield from RANGE[first:]
        yield from RANGE[:first]

    def _try_lock(self, port: int) -> bool:
        with ExitStack() as opened:
            lock = opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            try:
                lock.bind((LOOPBACK, port))
            except OSError:
                return False
            self._locks.push(opened.pop_all())
        return True


@contextmanager
def reserve_ports(remembered: dict[str, int], announce: Announce = announce_by_log) -> Iterator[PortReservations]:
    """Yield ports that stay reserved to the end of the block."""
    with ExitStack() as locks:
        yield PortReservations(remembered, locks, announce)


def is_port_free(port: int) -> bool:
    """Return whether a port of the loopback address is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
