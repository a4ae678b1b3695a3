"""Shared reads: a caller gets the result that it would have got by reading alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from api.batching import BatchedLookup, UncachedReadByKey


class CountingReader:
    """Returns how often it was called, once it is allowed to."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.allowed = asyncio.Event()

    async def read(self, key: str) -> int:
        """Return the number of this call."""
        self.keys.append(key)
        number = len(self.keys)
        await self.allowed.wait()
        if key == "broken":
            raise LookupError(key)
        return number


async def run_ready_tasks() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_callers_that_come_during_a_read_share_the_next_one() -> None:
    """A hundred that come during the first read need one more, and none of them gets the older result."""
    reader = CountingReader()
    shared = UncachedReadByKey(reader.read)
    first = asyncio.create_task(shared.read_anew("a"))
    await run_ready_tasks()
    others = [asyncio.create_task(shared.read_anew("a")) for _ in range(100)]
    await run_ready_tasks()
    assert reader.keys == ["a"]

    reader.allowed.set()

    assert await first == 1
    assert await asyncio.gather(*others) == [2] * 100
    assert await shared.read_anew("a") == 3


async def test_reads_of_different_keys_do_not_wait_for_each_other() -> None:
    """Each key is read at once."""
    reader = CountingReader()
    shared = UncachedReadByKey(reader.read)
    asking = [asyncio.create_task(shared.read_anew(key)) for key in "abc"]
    await run_ready_tasks()

    assert reader.keys == ["a", "b", "c"]
    reader.allowed.set()
    assert await asyncio.gather(*asking) == [1, 2, 3]


async def test_a_failed_read_fails_only_for_those_who_share_it() -> None:
    """The next caller reads again."""
    reader = CountingReader()
    reader.allowed.set()
    shared = UncachedReadByKey(reader.read)
    sharing = [asyncio.create_task(shared.read_anew("broken")) for _ in range(2)]

    for task in sharing:
        with pytest.raises(LookupError):
            await task
    assert reader.keys == ["broken"]
    with pytest.raises(LookupError):
        await shared.read_anew("broken")
    assert reader.keys == ["broken"] * 2


async def test_a_cancelled_caller_does_not_cancel_the_read() -> None:
    """The others get its result."""
    reader = CountingReader()
    shared = UncachedReadByKey(reader.read)
    leaving = asyncio.create_task(shared.read_anew("a"))
    staying = asyncio.create_task(shared.read_anew("a"))
    await run_ready_tasks()
    leaving.cancel()
    reader.allowed.set()

    assert await staying == 1


async def test_after_a_shared_read_the_next_one_waits_for_more_callers() -> None:
    """A lone caller never waits; after a read that several shared, callers that come in the pause share the next."""
    reader = CountingReader()
    reader.allowed.set()
    shared = UncachedReadByKey(reader.read, pause_seconds=0.5)
    assert [await shared.read_anew("a"), await shared.read_anew("a")] == [1, 2]

    assert [*await asyncio.gather(shared.read_anew("a"), shared.read_anew("a"))] == [3, 3]
    joining = [asyncio.create_task(shared.read_anew("a"))]
    await run_ready_tasks()
    joining.append(asyncio.create_task(shared.read_anew("a")))
    assert await asyncio.gather(*joining) == [4, 4]


class BatchReader:
    """Reads many keys at once, once it is allowed to."""

    def __init__(self) -> None:
        self.keys: list[list[int]] = []
        self.allowed = asyncio.Event()

    async def read_all(self, keys: Sequence[int]) -> dict[int, str]:
        """Return a value for each even key; raise for a negative one."""
        self.keys.append(list(keys))
        await self.allowed.wait()
        if min(keys) < 0:
            raise LookupError("negative")
        return {key: f"{key}!" for key in keys if key % 2 == 0}


async def test_different_keys_are_read_at_once() -> None:
    """Callers that come during a read share the next, up to its number of keys; each gets the value of its own key."""
    reader = BatchReader()
    lookup = BatchedLookup(reader.read_all, 3)
    first = asyncio.create_task(lookup.look_up_in_next_batch(0))
    await run_ready_tasks()
    others = [asyncio.create_task(lookup.look_up_in_next_batch(key)) for key in (1, 2, 2, 3, 4)]
    await run_ready_tasks()
    reader.allowed.set()

    assert await first == "0!"
    assert await asyncio.gather(*others) == [None, "2!", "2!", None, "4!"]
    assert reader.keys == [[0], [1, 2, 3], [4]]


async def test_a_failed_lookup_fails_only_for_its_own_batch() -> None:
    """The next batch is read, without the callers that have gone."""
    reader = BatchReader()
    lookup = BatchedLookup(reader.read_all, 2)
    first, gone, good = (asyncio.create_task(lookup.look_up_in_next_batch(key)) for key in (-1, -2, 2))
    await run_ready_tasks()
    gone.cancel()
    reader.allowed.set()

    with pytest.raises(LookupError):
        await first
    assert await good == "2!"


async def test_a_cancelled_read_cancels_every_waiting_caller() -> None:
    """Those of this read and of the next; a later caller starts a new read."""

    async def give_up(_key: str) -> int:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    shared = UncachedReadByKey(give_up)
    first = asyncio.create_task(shared.read_anew("a"))
    await asyncio.sleep(0)
    second = asyncio.create_task(shared.read_anew("a"))

    for asking in (first, second, asyncio.create_task(shared.read_anew("a"))):
        with pytest.raises(asyncio.CancelledError):
            await asking
