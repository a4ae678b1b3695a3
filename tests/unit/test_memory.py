"""Memory that is free goes back to the system."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

import pytest

from infra import memory

SCRIPT = """
    import psutil
    from infra import memory

    memory.limit_allocator_memory()
    used = lambda: psutil.Process().memory_info().rss >> 20
    small = [bytes(1_000) for _ in range(150_000)]
    kept = small[::1_000]
    full = used()
    del small
    memory.return_free_memory()
    print(full - used())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only the GNU library keeps what was freed like this")
def test_what_was_freed_between_small_pieces_goes_back() -> None:
    """A process of 150 MB of small blocks has most of them back, although some are still in use."""
    answer = subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT)], check=True, capture_output=True, text=True)
    assert int(answer.stdout) > 100


async def test_it_is_given_back_until_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, and not once more after that."""
    given = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(memory, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(memory, "return_free_memory", lambda: loop.call_soon_threadsafe(given.set))
    stop = asyncio.Event()
    giving = asyncio.create_task(memory.return_memory_periodically(stop))
    for _ in range(2):
        await given.wait()
        given.clear()
    stop.set()
    await giving
