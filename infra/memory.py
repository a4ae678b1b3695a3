"""Memory of a process: what is freed goes back to the system instead of staying with the allocator.

By default glibc keeps a heap for each thread and, once a large block has been freed, takes large blocks from these
heaps. A worker that has made many files then holds twice the memory that it uses.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import Any

ARENAS_MAX = 2
MAP_BYTES = 1024 * 1024
"""Blocks of this size or more are mapped one by one, and go back to the system as soon as they are freed."""
RELEASE_SECONDS = 5.0

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8


def limit_heaps() -> None:
    """Keep few heaps, and none of large blocks; to be called before threads begin. Nothing happens without glibc."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, ARENAS_MAX)
        libc.mallopt(_M_MMAP_THRESHOLD, MAP_BYTES)


async def release_regularly() -> None:
    """Give back what is free every few seconds, until cancelled."""
    while True:
        await asyncio.sleep(RELEASE_SECONDS)
        await asyncio.to_thread(release)


def release() -> None:
    """Give back what is free."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> Any:
    """The C library, if it is one whose heaps can be told what to do."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
