"""Batches: which items are sent together, how each gets its result, and how long a message is repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from api import batching
from api.batching import (
    AbstractBatcher,
    BatchedLookup,
    BatchItem,
    GrowingPausesUntilRetryTimeout,
    UncachedReadByKey,
)
from infra.outages import Component, EngineUnresponsive, find_component_in_outage

CAPACITY = 10


class NumberedBatches(AbstractBatcher[str, int]):
    """Sends batches up to a weight of 10; the result of an item is the number of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[str]] = []
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.idle_count = 0
        self.is_waiting_for_more = False

    def make_fit_check(self) -> Callable[[BatchItem[str, int]], bool]:
        """See base class."""
        left = CAPACITY

        def fits(item: BatchItem[str, int]) -> bool:
            nonlocal left
            left -= item.weight
            return left >= 0

        return fits

    def is_ready(self) -> bool:
        """See base class."""
        return self.weight >= CAPACITY

    async def wait_for_batch(self) -> None:
        """See base class."""
        if self.is_waiting_for_more:
            await self.wait_until_ready(60.0)

    async def send_batch(self, batch: list[BatchItem[str, int]]) -> None:
        """See base class."""
        self.sent.append([item.value for item in batch])
        await self.allowed.wait()
        if "broken" in self.sent[-1]:
            raise LookupError("broken")
        late = [item for item in batch if item.value == "late" and len(self.sent) == 1]
        for item in batch:
            if item not in late:
                item.resolve(len(self.sent))
        self.put_back_at_front(late)

    def on_idle(self) -> None:
        """See base class."""
        self.idle_count += 1


async def run_ready_tasks() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_items_are_sent_in_order_as_many_as_fit() -> None:
    """The first item of a batch is sent even if it alone is too heavy: it would wait for ever."""
    batcher = NumberedBatches()
    answers = [batcher.submit(name, weight) for name, weight in [("a", 4), ("b", 6), ("c", 1), ("huge", 11), ("d", 10)]]

    assert await asyncio.gather(*answers) == [1, 1, 2, 3, 4]
    assert batcher.sent == [["a", "b"], ["c"], ["huge"], ["d"]]
    assert (batcher.weight, batcher.idle_count) == (0, 1)


async def test_one_batch_is_sent_at_a_time() -> None:
    """Items that arrive meanwhile are in the next batch, which is sent when the one before has its results."""
    batcher = NumberedBatches()
    batcher.allowed.clear()
    first = batcher.submit("a")
    await run_ready_tasks()
    others = [batcher.submit(name) for name in "bc"]
    await run_ready_tasks()
    assert batcher.sent == [["a"]]

    batcher.allowed.set()

    assert [await first, *await asyncio.gather(*others)] == [1, 2, 2]


async def test_a_full_batch_is_sent_at_once() -> None:
    """It waits for further items only while they would fit."""
    batcher = NumberedBatches()
    batcher.is_waiting_for_more = True
    first = batcher.submit("a", 6)
    await run_ready_tasks()
    assert batcher.sent == []

    assert [await batcher.submit("b", 4), await first] == [1, 1]


async def test_requeued_items_are_the_first_in_the_next_batch() -> None:
    """They arrived before the items that were submitted since."""
    batcher = NumberedBatches()
    batcher.allowed.clear()
    late, other = batcher.submit("late"), batcher.submit("other")
    await run_ready_tasks()
    last = batcher.submit("last")
    batcher.allowed.set()

    assert [await late, await other, await last] == [2, 1, 2]
    assert batcher.sent == [["late", "other"], ["late", "last"]]


async def test_an_error_rejects_the_items_of_its_batch_only() -> None:
    """The next batch is sent; the item of a caller who has gone is dropped."""
    batcher = NumberedBatches()
    broken, beside, gone = batcher.submit("broken", 5), batcher.submit("beside", 5), batcher.submit("gone", 10)
    gone.cancel()
    good = batcher.submit("good", 10)

    for answer in (broken, beside):
        with pytest.raises(LookupError):
            await answer
    assert await good == 2
    assert batcher.sent == [["broken", "beside"], ["good"]]


async def test_cancelling_a_batch_cancels_every_waiting_item() -> None:
    """Those in it and those behind it; an item that is submitted later is sent."""
    batcher = NumberedBatches()
    batcher.allowed.clear()
    inside, behind = batcher.submit("a", 10), batcher.submit("b", 10)
    await run_ready_tasks()
    assert batcher.sending is not None
    batcher.sending.cancel()
    await run_ready_tasks()

    assert (inside.cancelled(), behind.cancelled()) == (True, True)
    batcher.allowed.set()
    assert await batcher.submit("c") == 2


async def test_a_retry_window_ends_with_an_outage_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what did not answer and the last cause."""
    monkeypatch.setattr(batching, "RETRY_WINDOW_SECONDS", 0.2)
    window, waits = GrowingPausesUntilRetryTimeout("a lane", EngineUnresponsive), 0

    async def retry() -> None:
        nonlocal waits
        while True:
            await window.pause_before_retry_or_raise(ConnectionResetError("by peer"))
            waits += 1

    with pytest.raises(EngineUnresponsive, match=r"a lane did not answer in 0\.2 s: by peer") as raised:
        await retry()
    assert 1 <= waits <= 4
    assert find_component_in_outage(raised.value) is Component.ENGINE


async def test_the_pause_is_shorter_for_a_message_that_may_soon_be_accepted() -> None:
    """A workflow that continues as new accepts messages again within milliseconds."""
    window = GrowingPausesUntilRetryTimeout("a lane", EngineUnresponsive)
    began = time.monotonic()
    await window.pause_before_retry_or_raise(ConnectionError("closing"), is_short=True)
    soon = time.monotonic() - began
    began = time.monotonic()
    await window.pause_before_retry_or_raise(ConnectionError("unanswered"))

    # The loop counts from the time at which its turn began, which may be some milliseconds ago.
    assert soon >= 0.5 * batching.PAUSE_MIN_SECONDS
    assert time.monotonic() - began >= 0.8 * batching.PAUSE_USUAL_SECONDS > 2 * batching.PAUSE_MIN_SECONDS


async def test_a_guess_is_what_the_last_read_found() -> None:
    """A read that begins later is not answered by it."""
    values = iter([1, 2])

    async def read(_key: str) -> int:
        return next(values)

    reads = UncachedReadByKey(read)
    assert reads.guess("a") is None
    assert await reads.read_anew("a") == 1
    later = reads.queue_read_after_current("a")

    assert (reads.guess("a"), await later, reads.guess("a"), reads.guess("b")) == (1, 2, 2, None)


async def test_lookups_gather_after_one_that_was_shared() -> None:
    """One that comes alone is read at once; the pause after a shared read lets those that follow come together."""
    read: list[Sequence[str]] = []

    async def read_all(keys: Sequence[str]) -> dict[str, str]:
        read.append(keys)
        return {}

    lookup = BatchedLookup(read_all, max_keys=10, pause_seconds=0.5)
    await lookup.look_up_in_next_batch("a")
    await asyncio.gather(*map(lookup.look_up_in_next_batch, "bc"))
    first = lookup.submit("d")
    await run_ready_tasks()
    assert read == [["a"], ["b", "c"]]

    await asyncio.gather(first, lookup.submit("e"))
    assert read == [["a"], ["b", "c"], ["d", "e"]]
