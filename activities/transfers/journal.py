"""The journal of GSE tasks that are being begun, on this host's disk.

GSE has no idempotency key for beginning a task, and no call that finds a task again. The id in its answer is therefore
written here in the same turn of the event loop in which it is read. If the process dies before the database has the id,
a process that takes the shard over on this host finds it here.
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

POLL_SECONDS = 0.1
RETENTION = timedelta(days=2)
"""Longer than any job, whose timeout is a day at most; older entries belong to shards that another host took over."""


class JournaledTask(msgspec.Struct, frozen=True):
    """A GSE task of which GSE answered the id."""

    task_id: str
    answered_at: float
    """In seconds since 1970."""


@dataclass(frozen=True, slots=True)
class LockedJournalEntry:
    """The entry of one GSE task. Its file is locked as long as the process that begins the task lives."""

    path: Path
    descriptor: int

    def write_task_id(self, task_id: str) -> None:
        """Write the id; log an error if the disk fails, since the database may still save the id."""
        line = msgspec.json.encode(JournaledTask(task_id, time.time())) + b"\n"
        try:
            while line:  # a disk that is almost full takes a part, and refuses the rest
                line = line[os.write(self.descriptor, line) :]
        except OSError as error:
            log.get(__name__).error("gse_task_journal_write_failed", task_id=task_id, error=str(error))

    def delete_file(self) -> None:
        """Remove the entry, once the database has the result."""
        self.path.unlink(missing_ok=True)


class GseTaskJournal:
    """The entries of all processes on this host that use the same folder, which is created if it is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def create_and_lock_entry(self, key: str) -> Iterator[LockedJournalEntry]:
        """Create and lock an entry under a new key; it stays until it is discarded."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / key
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield LockedJournalEntry(path, descriptor)
        finally:
            os.close(descriptor)

    async def read_task_or_wait_while_locked(self, key: str, max_wait_seconds: float) -> JournaledTask | None:
        """Return the GSE task of an entry; None if GSE has not answered, or answered another host.

        Args:
            key: The key of the entry.
            max_wait_seconds: How long to wait for a living process that waits for the answer.
        """
        until = time.monotonic() + max_wait_seconds
        while True:
            # In this order: a process may write just before it unlocks the entry.
            is_over = not self._is_locked(key) or time.monotonic() >= until
            if (task := self._read_entry(key)) or is_over:
                return task
            await asyncio.sleep(POLL_SECONDS)

    def delete_entry(self, key: str) -> None:
        """Remove an entry if it exists."""
        (self._folder / key).unlink(missing_ok=True)

    def delete_expired_entries(self) -> None:
        """Remove entries past their retention."""
        oldest = time.time() - RETENTION.total_seconds()
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):  # another process purges, too
                if path.is_file() and path.stat().st_mtime < oldest:
                    path.unlink()

    def _is_locked(self, key: str) -> bool:
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

    def _read_entry(self, key: str) -> JournaledTask | None:
        try:
            line = (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None
        if not line.endswith(b"\n"):
            return None
        try:
            return msgspec.json.decode(line, type=JournaledTask)
        except msgspec.DecodeError as error:
            log.get(__name__).error("gse_task_journal_unreadable", key=key, error=str(error))
            return None
