"""Return free memory to the system, instead of keeping it for the next peak."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import Final

INTERVAL_SECONDS: Final = 10.0
ARENAS_MAX: Final = 2
"""By default each thread has its own arena, which keeps the size of its peak."""
MAPPED_FROM_BYTES: Final = 2 * 1024 * 1024
"""Longer blocks are mapped, and returned when they are freed. By default the limit grows with them, up to 32 MB."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # the GNU library's numbers


def limit_allocator_memory() -> None:
    """Have the GNU library's allocator keep less free memory; do nothing with another one."""
    if (library := _load_gnu_library()) is not None:
        library.mallopt(_ARENA_MAX, ARENAS_MAX)
        library.mallopt(_MMAP_THRESHOLD, MAPPED_FROM_BYTES)


async def return_memory_periodically(stop: asyncio.Event) -> None:
    """Return free memory to the system at intervals, until `stop` is set."""
    while not stop.is_set():
        try:
            async with asyncio.timeout(INTERVAL_SECONDS):
                await stop.wait()
        except TimeoutError:
            await asyncio.to_thread(return_free_memory)


def return_free_memory() -> None:
    """Return the unused memory of Arrow and of the allocator to the system."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    if (library := _load_gnu_library()) is not None:
        library.malloc_trim(0)


def _load_gnu_library() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
