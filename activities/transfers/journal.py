"""The journal of GSE tasks that are being begun, on this host's disk.

GSE has no key that makes beginning a task safe to repeat, and no call that finds a task again. Its answer is therefore
written here in the same turn of the loop in which it is read, before anything else is done with it. A process that dies
before the database has the id leaves it to whoever takes the shard over on this host.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec

from infra import log

LOOK_SECONDS = 0.1
KEPT = timedelta(days=2)
"""A job is over long before; what is older belongs to shards that another host took over."""


class BegunTask(msgspec.Struct, frozen=True):
    """A GSE task whose id was told."""

    task_id: str
    told_at: float
    """In seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One GSE task that is being begun. Its file is locked for as long as the process that begins it lives."""

    path: Path
    descriptor: int

    def note(self, task_id: str) -> None:
        """Write the id down at once; where the disk cannot take it, the database still may."""
        line = msgspec.json.encode(BegunTask(task_id, time.time())) + b"\n"
        try:
            os.write(self.descriptor, line)
        except OSError as error:
            log.get(__name__).error("gse_task_not_in_journal", task_id=task_id, error=str(error))

    def discard(self) -> None:
        """Remove it: the database has what came of it."""
        self.path.unlink(missing_ok=True)


class Journal:
    """The entries of all processes on this host that name the same folder.

    Args:
        folder: Is made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def begin(self, key: str) -> Iterator[Entry]:
        """Make an entry before GSE is asked; it stays until it is discarded.

        Args:
            key: Its name, which no other entry has.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / key
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Entry(path, descriptor)
        finally:
            os.close(descriptor)

    async def find(self, key: str, patience_seconds: float) -> BegunTask | None:
        """Return what GSE told of an entry; None where it told nothing, or told it to another host.

        Args:
            key: Its name.
            patience_seconds: How long to wait for a living process that has asked and was not answered yet.
        """
        until = time.monotonic() + patience_seconds
        while True:
            # In this order: who lets go may have written just before.
            is_over = not self._is_held(key) or time.monotonic() >= until
            if (found := self._read(key)) or is_over:
                return found
            await asyncio.sleep(LOOK_SECONDS)

    def discard(self, key: str) -> None:
        """Remove an entry, if it is there."""
        (self._folder / key).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove entries that nobody on this host took up."""
        oldest = time.time() - KEPT.total_seconds()
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):  # another process sweeps, too
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _is_held(self, key: str) -> bool:
        try:
            descriptor = os.open(self._folder / key, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _read(self, key: str) -> BegunTask | None:
        try:
            line = (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(line, type=BegunTask) if line.endswith(b"\n") else None
