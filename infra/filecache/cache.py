"""The cache: a file is fetched once, checked before it is used, and kept while anybody on this host uses it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from weakref import WeakValueDictionary

from domain.faults import SourceFault
from infra import log
from infra.filecache import locks

Fetch = Callable[[Path], Awaitable[None]]
Print = tuple[int, int, int, int]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_INNER = ".cache"
AGAIN_SECONDS = 1.0
"""Pause before a file is fetched once more that was refused, or was another one."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file and what belongs to it. The folder of a business holds nothing but files that are whole."""

    root: Path
    biz: str
    sha256: str

    @property
    def path(self) -> Path:
        return self.root / self.biz / self.sha256

    @property
    def pin(self) -> Path:
        """Locked together by those who use the file; when it was last, its time tells."""
        return self.root / _INNER / "pins" / f"{self.biz}.{self.sha256}"

    @property
    def flight(self) -> Path:
        """Locked by the one who fetches or checks the file."""
        return self.root / _INNER / "flights" / f"{self.biz}.{self.sha256}"

    @property
    def partials(self) -> Path:
        """What is being fetched, with one more part in the name; while nobody holds `flight` it is stale."""
        return self.root / _INNER / "partials" / f"{self.biz}.{self.sha256}"


class FileCache:
    """Least recently used files go when the limit is passed, but never one that a living process has pinned.

    Args:
        root: The cache's folder. All processes that name the same folder share it.
        max_bytes: How much it may hold; what is pinned may exceed it.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root.absolute()
        self._max_bytes = max_bytes
        self._verified: dict[Path, Print] = {}
        self._turns: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def pinned(self, biz: int, sha256: str, fetch: Fetch) -> AsyncIterator[Path]:
        """The file, whole and there for as long as the body runs.

        Args:
            biz: Whose file it is.
            sha256: What it must hold.
            fetch: Writes it to the path that it is given; called by one process of the host at a time, and only where
                the file is missing or damaged.

        Raises:
            SourceFault: What was fetched is something else.
        """
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is no SHA-256. Give 64 digits of 0-9 and a-f.")
        entry = _Entry(self._root, str(biz), sha256)
        async with locks.shared(entry.pin):
            if not self._is_known_good(entry):
                await self._provide(entry, fetch)
            yield entry.path

    def forget(self, biz: int, sha256: str) -> None:
        """Read the file whole again before its next use: somebody had trouble with it."""
        self._verified.pop(_Entry(self._root, str(biz), sha256).path, None)

    async def _provide(self, entry: _Entry, fetch: Fetch) -> None:
        turn = self._turns.setdefault(entry.path, asyncio.Lock())
        async with turn, locks.alone(entry.flight):
            if self._is_known_good(entry) or await asyncio.to_thread(self._is_good, entry):
                return
            try:
                await self._fetch(entry, fetch)
            except SourceFault:
                # A repository may be between two versions, or have been cut off: the same twice is believed.
                await asyncio.sleep(AGAIN_SECONDS)
                await self._fetch(entry, fetch)
        await asyncio.to_thread(self._tidy)

    async def _fetch(self, entry: _Entry, fetch: Fetch) -> None:
        partial = _begun(entry)
        try:
            await fetch(partial)
            await asyncio.to_thread(self._take_in, entry, partial)
        finally:
            _discard(partial)

    def _is_known_good(self, entry: _Entry) -> bool:
        known = self._verified.get(entry.path)
        return known is not None and known == _print_of(entry.path)

    def _is_good(self, entry: _Entry) -> bool:
        before = _print_of(entry.path)
        if before is None:
            return False
        found = _sha256(entry.path)
        if found != entry.sha256:
            log.get(__name__).error("cached_file_damaged", path=str(entry.path), sha256=found)
            return False
        self._verified[entry.path] = before
        return True

    def _take_in(self, entry: _Entry, partial: Path) -> None:
        found = _sha256(partial)
        if found != entry.sha256:
            raise SourceFault(
                "signature_mismatch",
                f"The file that was fetched has the SHA-256 {found}, not {entry.sha256}.",
                "Send the signature of the file that lies in the repository, or put the right file there.",
            )
        _sync(partial)
        partial.replace(entry.path)
        _sync(entry.path.parent)
        known = _print_of(entry.path)
        if known is not None:
            self._verified[entry.path] = known

    def _tidy(self) -> None:
        """Remove what killed processes left, then the files that were not used for longest, down to the limit."""
        self._sweep()
        files = sorted(self._files(), key=lambda file: file.used_at, reverse=True)
        held = sum(file.bytes for file in files)
        while files and held > self._max_bytes:
            oldest = files.pop()
            if self._evicted(oldest.entry):
                held -= oldest.bytes

    def _sweep(self) -> None:
        inner = self._root / _INNER
        for partial in (inner / "partials").glob("*"):
            with locks.alone_if_free(inner / "flights" / partial.stem) as free:
                if free:
                    _discard(partial)
        for pin in (inner / "pins").glob("*"):
            biz, _, sha256 = pin.name.partition(".")
            if not (self._root / biz / sha256).exists():
                with locks.alone_if_free(pin):
                    pass  # it goes with the lock

    def _files(self) -> Iterator[_File]:
        for path in self._root.glob("[0-9]*/*"):
            entry = _Entry(self._root, path.parent.name, path.name)
            if status := _status(path):
                used = _status(entry.pin) or status
                yield _File(entry, status.st_size, used.st_mtime)

    def _evicted(self, entry: _Entry) -> bool:
        with locks.alone_if_free(entry.pin) as free:
            if free:
                entry.path.unlink(missing_ok=True)
                self._verified.pop(entry.path, None)
                log.get(__name__).info("cached_file_evicted", path=str(entry.path))
        return free


@dataclass(frozen=True, slots=True)
class _File:
    entry: _Entry
    bytes: int
    used_at: float


def _begun(entry: _Entry) -> Path:
    """A new path, because a thread that outlives a cancelled try must not find the next one's file at its own."""
    for folder in (entry.partials.parent, entry.path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    for stale in entry.partials.parent.glob(f"{entry.partials.name}.*"):
        _discard(stale)
    return entry.partials.with_name(f"{entry.partials.name}.{uuid4().hex}")


def _discard(path: Path) -> None:
    path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _print_of(path: Path) -> Print | None:
    """What changes when a file does."""
    status = _status(path)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status else None
