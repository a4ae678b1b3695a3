"""Reads that several callers share: `CoalescedRead`, `BatchedLookup` and `CachedRead`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from api.batching import Batcher, BatchItem

Key = TypeVar("Key")
Result = TypeVar("Result")

FRESH_SECONDS: Final = 2.0
COST_FACTOR: Final = 20
"""A result is kept for this many times as long as its read took, so that reads take a twentieth of the time at most."""


class CoalescedRead(Generic[Key, Result]):
    """Share one read among callers that ask for the same key at the same time.

    A caller that comes while a read of its key is under way waits for the next read, so a result is never older than
    the request for it.

    Args:
        read: Reads the value of a key.
        pause_seconds: After a read that several callers shared, wait this long before the next read of that key.
    """

    def __init__(self, read: Callable[[Key], Awaitable[Result]], pause_seconds: float = 0.0) -> None:
        self._read = read
        self._pause_seconds = pause_seconds
        self._batchers: dict[Key, _KeyBatcher[Key, Result]] = {}

    async def get(self, key: Key) -> Result:
        """Return the value of a key by a read that starts after this call."""
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = _KeyBatcher(key, self._read, self._pause_seconds, self._batchers)
        return await batcher.submit(key)


class _KeyBatcher(Batcher[Key, Result]):
    """The callers that wait for one key."""

    def __init__(
        self,
        key: Key,
        read: Callable[[Key], Awaitable[Result]],
        pause_seconds: float,
        batchers: dict[Key, _KeyBatcher[Key, Result]],
    ) -> None:
        super().__init__()
        self._key = key
        self._read = read
        self._pause_seconds = pause_seconds
        self._batchers = batchers

    def make_fit_check(self) -> Callable[[BatchItem[Key, Result]], bool]:
        """See base class. One result serves any number of callers."""
        return lambda _item: True

    async def send_batch(self, batch: list[BatchItem[Key, Result]]) -> None:
        """See base class."""
        result = await self._read(self._key)
        for item in batch:
            item.resolve(result)
        if self._pause_seconds and len(batch) > 1:
            await asyncio.sleep(self._pause_seconds)

    def on_idle(self) -> None:
        """See base class. Forget the key."""
        self._batchers.pop(self._key, None)


class BatchedLookup(Batcher[Key, Result | None]):
    """Look up many keys by one read; callers that come while a read is under way are in the next.

    Args:
        read_all: Reads the values of several keys; keys without a value are left out of its result.
        max_keys: How many different keys one read takes.
    """

    def __init__(self, read_all: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Result]]], max_keys: int) -> None:
        super().__init__()
        self._read_all = read_all
        self._max_keys = max_keys

    async def get(self, key: Key) -> Result | None:
        """Return the value of a key by a read that starts after this call; None if it has none."""
        return await self.submit(key)

    def make_fit_check(self) -> Callable[[BatchItem[Key, Result | None]], bool]:
        """See base class. Callers that ask for the same key count once."""
        keys: set[Key] = set()

        def fits(item: BatchItem[Key, Result | None]) -> bool:
            keys.add(item.value)
            return len(keys) <= self._max_keys

        return fits

    async def send_batch(self, batch: list[BatchItem[Key, Result | None]]) -> None:
        """See base class."""
        found = await self._read_all(list(dict.fromkeys(item.value for item in batch)))
        for item in batch:
            item.resolve(found.get(item.value))


class CachedRead(Generic[Result]):
    """Read at most once in `seconds`; callers that come during a read wait for its result."""

    def __init__(self, read: Callable[[], Awaitable[Result]], seconds: float = FRESH_SECONDS) -> None:
        self._read = read
        self._seconds = seconds
        self._fresh_until = 0.0
        self._reading: asyncio.Task[Result] | None = None

    async def get(self) -> Result:
        """Return the last result while it is fresh, otherwise a new one; a failed read fails for all who wait."""
        if self._reading is None or (self._reading.done() and time.monotonic() >= self._fresh_until):
            self._reading = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._reading)

    async def _refresh(self) -> Result:
        started = time.monotonic()
        try:
            return await self._read()
        finally:
            now = time.monotonic()
            self._fresh_until = max(started + self._seconds, now + COST_FACTOR * (now - started))
