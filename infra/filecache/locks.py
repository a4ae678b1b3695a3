"""Locks that all processes of a host see and that end with the process that holds them: `flock` on a file."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

POLL_SECONDS = 0.02


@asynccontextmanager
async def shared(path: Path) -> AsyncIterator[None]:
    """Wait until nobody holds it alone, then hold it together with others. Says on the file that it was used now."""
    descriptor = await _waited(path, fcntl.LOCK_SH)
    try:
        os.utime(descriptor)
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def alone(path: Path) -> AsyncIterator[None]:
    """Wait until nobody holds it, then hold it alone. The file is gone afterwards."""
    descriptor = await _waited(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        _remove(path, descriptor)


@contextmanager
def alone_if_free(path: Path) -> Iterator[bool]:
    """Hold it alone if nobody holds it; says whether it does. The file is gone afterwards if so."""
    descriptor = _tried(path, fcntl.LOCK_EX)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _remove(path, descriptor)


async def _waited(path: Path, kind: int) -> int:
    # Not in a thread: many that wait there for one download would leave no thread for it to be checked in.
    while (descriptor := _tried(path, kind)) is None:  # noqa: ASYNC110 - the holder may be another process
        await asyncio.sleep(POLL_SECONDS)
    return descriptor


def _tried(path: Path, kind: int) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if _is_still(path, descriptor):
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove(path: Path, descriptor: int) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """A holder removes the file before it lets go: who waited for that file must begin again with the new one."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
