"""Large pieces of work share the memory of a process, and what is free goes back to the system."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from contextlib import ExitStack

import pytest

from infra import memory
from infra.memory import SMALL_BYTES, CompressedBytes, MemoryBudget
from tests.support.waiting import PATIENCE_SECONDS

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


def test_compressed_bytes_are_the_same_again() -> None:
    """Whatever they are."""
    for content in (b"", b"{}", b"order " * 100_000, bytes(range(256)) * 7):
        packed = CompressedBytes(content)
        assert (packed.decompress(), packed.size) == (content, len(content))
    assert len(CompressedBytes(b"order " * 100_000)._compressed) < 60_000


async def test_large_pieces_of_work_wait_for_each_other_and_the_oldest_goes_on() -> None:
    """Beyond the limit; small ones never wait, and what ends makes room."""
    budget, large = MemoryBudget(3 * SMALL_BYTES), SMALL_BYTES + 1
    with budget.hold() as small, ExitStack() as work:
        oldest = work.enter_context(budget.hold())
        with budget.hold() as younger:
            await oldest.add(large)
            waiting = asyncio.create_task(younger.add(2 * large))
            await asyncio.wait_for(small.add(SMALL_BYTES), PATIENCE_SECONDS)
            await asyncio.wait_for(oldest.add(large), PATIENCE_SECONDS)
            assert not waiting.done()
            work.close()
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def test_what_is_added_counts_also_where_the_wait_is_given_up() -> None:
    """It is held until the work ends."""
    budget = MemoryBudget(SMALL_BYTES)
    with budget.hold() as oldest, budget.hold() as younger:
        await oldest.add(2 * SMALL_BYTES)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(younger.add(2 * SMALL_BYTES), 0.01)
        assert younger.bytes == 2 * SMALL_BYTES


async def test_what_holds_less_lets_others_go_on() -> None:
    """It need not end before."""
    budget = MemoryBudget(3 * SMALL_BYTES)
    with budget.hold() as oldest, budget.hold() as younger:
        await oldest.add(3 * SMALL_BYTES)
        waiting = asyncio.create_task(younger.add(2 * SMALL_BYTES))
        await asyncio.sleep(0)
        assert not waiting.done()
        oldest.release(2 * SMALL_BYTES)
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert (oldest.bytes, younger.bytes) == (SMALL_BYTES, 2 * SMALL_BYTES)
