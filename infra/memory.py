"""Memory of a process: what large pieces of work hold together is limited, and what is free goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from isal import isal_zlib

INTERVAL_SECONDS: Final = 10.0
ARENAS_MAX: Final = 2
"""By default each thread has its own arena, which keeps the size of its peak."""
MAPPED_FROM_BYTES: Final = 2 * 1024 * 1024
"""Longer blocks are mapped, and returned when they are freed. By default the limit grows with them, up to 32 MB."""

SMALL_BYTES: Final = 2 * 1024 * 1024
"""A piece of work that holds no more than this never waits for others."""

_FASTEST: Final = 0
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # the GNU library's numbers


class CompressedBytes:
    """Bytes that may be needed later: the pages of a platform take a tenth of their size."""

    __slots__ = ("_compressed", "size")

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._compressed = isal_zlib.compress(content, _FASTEST)

    def decompress(self) -> bytes:
        """Return the bytes as they were."""
        return isal_zlib.decompress(self._compressed, bufsize=max(1, self.size))


class MemoryBudget:
    """Limits the bytes that large pieces of work of this process hold together.

    Beyond the limit all but the oldest wait before they go on. So each ends, and only one holds more than the limit
    leaves.
    """

    def __init__(self, bytes_max: float) -> None:
        self._bytes_max = bytes_max
        self._held = dict[HeldMemory, None]()
        self._released = asyncio.Event()

    @contextmanager
    def hold(self) -> Iterator[HeldMemory]:
        """Count what one piece of work holds until the body ends."""
        held = HeldMemory(self)
        self._held[held] = None
        try:
            yield held
        finally:
            del self._held[held]
            self.announce_release()

    def lets_go_on(self, held: HeldMemory) -> bool:
        """Return whether a piece of work may take more memory."""
        if held.bytes <= SMALL_BYTES or sum(each.bytes for each in self._held) <= self._bytes_max:
            return True
        return held is next((each for each in self._held if each.bytes > SMALL_BYTES), held)

    def announce_release(self) -> None:
        """Have the pieces of work that wait look whether they may go on."""
        self._released.set()

    async def wait_for_release(self) -> None:
        """Wait until another piece of work has ended, or holds less."""
        self._released.clear()
        await self._released.wait()


class HeldMemory:
    """What one piece of work holds."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.bytes = 0

    async def add(self, size: int) -> None:
        """Count more bytes; then wait until there is room for others. They count also if the wait is cancelled."""
        self.bytes += size
        while not self._budget.lets_go_on(self):
            await self._budget.wait_for_release()

    def release(self, size: int) -> None:
        """Count fewer bytes."""
        self.bytes -= size
        self._budget.announce_release()


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
