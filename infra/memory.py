"""Memory that a process does not need any more goes back to the system, instead of waiting for the next peak."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import Final

GIVE_BACK_EVERY_SECONDS: Final = 10.0
ARENAS_MAX: Final = 2
"""Each thread would have an arena of its own, and keep what it was once filled with."""
MAPPED_FROM_BYTES: Final = 2 * 1024 * 1024
"""Longer blocks are mapped, and go back when they are freed. By default the limit grows with them, up to 32 MB."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # the GNU library's numbers


def configure() -> None:
    """Keep the allocator from holding on to memory, where it is the GNU library's; elsewhere nothing is changed."""
    if (library := _gnu_library()) is not None:
        library.mallopt(_ARENA_MAX, ARENAS_MAX)
        library.mallopt(_MMAP_THRESHOLD, MAPPED_FROM_BYTES)


async def give_back(stop: asyncio.Event) -> None:
    """Return free memory to the system from time to time, until told to stop."""
    while not stop.is_set():
        try:
            async with asyncio.timeout(GIVE_BACK_EVERY_SECONDS):
                await stop.wait()
        except TimeoutError:
            await asyncio.to_thread(give_back_now)


def give_back_now() -> None:
    """Return what Arrow and the allocator hold and nobody uses."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    if (library := _gnu_library()) is not None:
        library.malloc_trim(0)


def _gnu_library() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
