"""The cache of files on this host, by SHA-256: fetched once, checked before use, and kept while a process pins them.

All processes of the host that name the same folder share it. They exclude each other by `flock`, so that a lock ends
with the process that holds it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from weakref import WeakValueDictionary

from domain.faults import SourceFault
from infra import log

FetchFile = Callable[[Path], Awaitable[None]]
Stamp = tuple[int, int, int, int]
FileDescriptor = int

REFETCH_PAUSE_SECONDS = 1.0
"""Pause before a file is fetched a second time because the repository refused it or its content was wrong."""
LOCK_POLL_SECONDS = 0.02

_SHA256 = re.compile(r"[0-9a-f]{64}")
_INTERNAL = ".cache"


@dataclass(frozen=True, slots=True)
class _CachedFilePaths:
    """One file, with the files that belong to it. The folder of a business holds only complete files."""

    root: Path
    biz: str
    sha256: str

    @property
    def path(self) -> Path:
        return self.root / self.biz / self.sha256

    @property
    def pin_lock_path(self) -> Path:
        """Locked, shared, by all users of the file; its modification time is that of the last use."""
        return self.root / _INTERNAL / "pins" / f"{self.biz}.{self.sha256}"

    @property
    def fetch_lock_path(self) -> Path:
        """Locked by the process that fetches or checks the file."""
        return self.root / _INTERNAL / "flights" / f"{self.biz}.{self.sha256}"

    @property
    def partial_path_prefix(self) -> Path:
        """The prefix of partially fetched files, which are stale unless `fetch_lock_path` is locked."""
        return self.root / _INTERNAL / "partials" / f"{self.biz}.{self.sha256}"


class FileCache:
    """Evicts the least recently used files beyond a limit, but no file that a living process pins.

    Args:
        root: The cache's folder.
        max_bytes: How much the cache may hold; pinned files may exceed it.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root.absolute()
        self._max_bytes = max_bytes
        self._verified: dict[Path, Stamp] = {}
        self._turns: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def provide_pinned(self, business_id: int, sha256: str, fetch: FetchFile) -> AsyncIterator[Path]:
        """Yield the path of the complete file, and keep the file there while the body runs.

        Args:
            business_id: The business that owns the file.
            sha256: The digest that the content must have.
            fetch: Writes the content to a path; called only if the file is missing or damaged, and by one process of
                the host at a time.

        Raises:
            SourceFault: The fetched content has another digest.
        """
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is no SHA-256. Give 64 digits of 0-9 and a-f.")
        entry = _CachedFilePaths(self._root, str(business_id), sha256)
        async with _hold_shared_lock_and_touch(entry.pin_lock_path):
            if not self._is_verified(entry):
                await self._fetch_unless_verified(entry, fetch)
            yield entry.path

    def require_full_verification_at_next_use(self, biz: int, sha256: str) -> None:
        """Check the whole file again before its next use."""
        self._verified.pop(_CachedFilePaths(self._root, str(biz), sha256).path, None)

    async def _fetch_unless_verified(self, entry: _CachedFilePaths, fetch: FetchFile) -> None:
        turn = self._turns.setdefault(entry.path, asyncio.Lock())
        async with turn, _hold_exclusive_lock_then_delete(entry.fetch_lock_path):
            if self._is_verified(entry) or await asyncio.to_thread(self._has_expected_digest_and_remember_it, entry):
                return
            # Before the fetch, too: what killed processes left may fill the disk, and then no fetch would succeed.
            await asyncio.to_thread(self._delete_leftovers_and_evict_to_limit)
            try:
                await self._fetch_then_verify_into_cache(entry, fetch)
            except SourceFault:
                # The repository may be between two versions, or was cut off: the same result twice is believed.
                await asyncio.sleep(REFETCH_PAUSE_SECONDS)
                await self._fetch_then_verify_into_cache(entry, fetch)
        await asyncio.to_thread(self._delete_leftovers_and_evict_to_limit)

    async def _fetch_then_verify_into_cache(self, entry: _CachedFilePaths, fetch: FetchFile) -> None:
        partial = _delete_stale_partials_and_choose_path(entry)
        try:
            await fetch(partial)
            await asyncio.to_thread(self._require_digest_and_move_into_cache, entry, partial)
        finally:
            partial.unlink(missing_ok=True)

    def _is_verified(self, entry: _CachedFilePaths) -> bool:
        stamp = self._verified.get(entry.path)
        return stamp is not None and stamp == _read_change_stamp(entry.path)

    def _has_expected_digest_and_remember_it(self, entry: _CachedFilePaths) -> bool:
        stamp = _read_change_stamp(entry.path)
        if stamp is None:
            return False
        digest = _compute_sha256(entry.path)
        if digest != entry.sha256:
            log.get(__name__).error("cached_file_damaged", path=str(entry.path), sha256=digest)
            return False
        self._verified[entry.path] = stamp
        return True

    def _require_digest_and_move_into_cache(self, entry: _CachedFilePaths, partial: Path) -> None:
        digest = _compute_sha256(partial)
        if digest != entry.sha256:
            raise SourceFault(
                "signature_mismatch",
                f"The file that was fetched has the SHA-256 {digest}, not {entry.sha256}.",
                "Send the signature of the file that lies in the repository, or put the right file there.",
            )
        _flush_to_disk(partial)
        partial.replace(entry.path)
        _flush_to_disk(entry.path.parent)
        stamp = _read_change_stamp(entry.path)
        if stamp is not None:
            self._verified[entry.path] = stamp

    def _delete_leftovers_and_evict_to_limit(self) -> None:
        """Remove what killed processes left behind, then the least recently used files, down to the limit."""
        self._remove_files_of_killed_processes()
        files = sorted(self._iterate_cached_files(), key=lambda file: file.used_at, reverse=True)
        held = sum(file.bytes for file in files)
        while files and held > self._max_bytes:
            oldest = files.pop()
            if self._evict_unless_pinned(oldest.entry):
                held -= oldest.bytes

    def _remove_files_of_killed_processes(self) -> None:
        internal = self._root / _INTERNAL
        for partial in (internal / "partials").glob("*"):
            with _try_exclusive_lock_then_delete(internal / "flights" / partial.stem) as locked:
                if locked:
                    partial.unlink(missing_ok=True)
        for pin in (internal / "pins").glob("*"):
            biz, _, sha256 = pin.name.partition(".")
            if not (self._root / biz / sha256).exists():
                with _try_exclusive_lock_then_delete(pin):
                    pass  # releasing the lock removes the file

    def _iterate_cached_files(self) -> Iterator[_CachedFileSizeAndLastUse]:
        for path in self._root.glob("[0-9]*/*"):
            entry = _CachedFilePaths(self._root, path.parent.name, path.name)
            if status := _stat_or_none(path):
                used = _stat_or_none(entry.pin_lock_path) or status
                yield _CachedFileSizeAndLastUse(entry, status.st_size, used.st_mtime)

    def _evict_unless_pinned(self, entry: _CachedFilePaths) -> bool:
        with _try_exclusive_lock_then_delete(entry.pin_lock_path) as locked:
            if locked:
                entry.path.unlink(missing_ok=True)
                self._verified.pop(entry.path, None)
                log.get(__name__).info("cached_file_evicted", path=str(entry.path))
        return locked


@dataclass(frozen=True, slots=True)
class _CachedFileSizeAndLastUse:
    entry: _CachedFilePaths
    bytes: int
    used_at: float


def _delete_stale_partials_and_choose_path(entry: _CachedFilePaths) -> Path:
    # A new path each time, because the thread of a cancelled fetch may still write to the old one.
    for folder in (entry.partial_path_prefix.parent, entry.path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    for stale in entry.partial_path_prefix.parent.glob(f"{entry.partial_path_prefix.name}.*"):
        stale.unlink(missing_ok=True)
    return entry.partial_path_prefix.with_name(f"{entry.partial_path_prefix.name}.{uuid4().hex}")


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stat_or_none(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _read_change_stamp(path: Path) -> Stamp | None:
    """Return values that change whenever the file does; None if it is missing."""
    status = _stat_or_none(path)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status else None


@asynccontextmanager
async def _hold_shared_lock_and_touch(path: Path) -> AsyncIterator[None]:
    """Wait for a shared lock, and set the file's modification time to now."""
    descriptor = await _wait_for_lock(path, fcntl.LOCK_SH)
    try:
        os.utime(descriptor)
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _hold_exclusive_lock_then_delete(path: Path) -> AsyncIterator[None]:
    """Wait for an exclusive lock; remove the file afterwards."""
    descriptor = await _wait_for_lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        _delete_and_unlock(path, descriptor)


@contextmanager
def _try_exclusive_lock_then_delete(path: Path) -> Iterator[bool]:
    """Yield whether the exclusive lock was free and is now held; if so, remove the file afterwards."""
    descriptor = _try_lock(path, fcntl.LOCK_EX)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _delete_and_unlock(path, descriptor)


async def _wait_for_lock(path: Path, kind: int) -> FileDescriptor:
    # Not in a thread: many that wait there for one download would leave no thread for it to be checked in.
    while (descriptor := _try_lock(path, kind)) is None:  # noqa: ASYNC110 - the holder may be another process
        await asyncio.sleep(LOCK_POLL_SECONDS)
    return descriptor


def _try_lock(path: Path, kind: int) -> FileDescriptor | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if _is_same_file(path, descriptor):
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _delete_and_unlock(path: Path, descriptor: int) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)


def _is_same_file(path: Path, descriptor: int) -> bool:
    # The holder removes the file before it unlocks it: a process that waited must begin again with the new file.
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
