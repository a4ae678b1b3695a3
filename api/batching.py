"""Batching: requests that arrive while a batch is under way are sent together in the next one.

Every group commit of the API subclasses `AbstractBatcher`, which says how long requests wait for each other
(`wait_for_batch`), how many fit into a batch (`make_fit_check`) and how they are answered (`send_batch`). Requests that
may be repeated are repeated with `GrowingPausesUntilRetryTimeout`. Callers share reads by `UncachedReadByKey`,
`BatchedLookup` and `CachedRead`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from infra.outages import EngineUnresponsive, is_outage

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")

RETRY_WINDOW_SECONDS: Final = 30.0
"""How long a batch is repeated before its callers get an error."""
PAUSE_MIN_SECONDS: Final = 0.01
PAUSE_USUAL_SECONDS: Final = 0.05
PAUSE_MAX_SECONDS: Final = 0.2
FRESH_SECONDS: Final = 2.0
COST_FACTOR: Final = 20
"""A result is kept for this many times as long as its read took, so that reads take a twentieth of the time at most."""
GUESSES_MAX: Final = 1_000
KEPT_MAX_SECONDS: Final = 60.0
"""But no longer than this: a read that took so long waited for a component, and what it found is old."""


@dataclass(slots=True)
class BatchItem(Generic[Value, Result]):
    """One request and the future of its result."""

    value: Value
    weight: int
    result: asyncio.Future[Result]
    """A future for each item: a caller that stops waiting does not cancel the batch."""

    def resolve(self, result: Result) -> None:
        """Set the result, unless the caller has stopped waiting."""
        if not self.result.done():
            self.result.set_result(result)

    def reject(self, error: Exception) -> None:
        """Set the error, unless the caller has stopped waiting."""
        if not self.result.done():
            self.result.set_exception(error)
            # The caller may be cancelled before it sees the error; asyncio would log it as never retrieved.
            self.result.exception()


class AbstractBatcher(ABC, Generic[Value, Result]):
    """Send items in batches, one batch at a time, for as long as any are waiting."""

    def __init__(self) -> None:
        self.waiting: deque[BatchItem[Value, Result]] = deque()
        self.weight = 0
        self.ready = asyncio.Event()
        """Set while the next batch need not wait for more items."""
        self.sending: asyncio.Task[None] | None = None

    def submit(self, value: Value, weight: int = 1) -> asyncio.Future[Result]:
        """Add an item to the next batch; return the future of its result."""
        item = BatchItem(value, weight, asyncio.get_running_loop().create_future())
        self.waiting.append(item)
        self.add_weight_and_check_ready(item)
        if self.sending is None:
            self.sending = asyncio.create_task(self._send_batches_until_none_waits())
        return item.result

    def put_back_at_front(self, items: list[BatchItem[Value, Result]]) -> None:
        """Put items that a batch could not hold at the front of the next one."""
        self.waiting.extendleft(reversed(items))
        for item in items:
            self.add_weight_and_check_ready(item)

    def take_batch(self) -> list[BatchItem[Value, Result]]:
        """Remove the next batch from the queue: in order, at least one item, without those whose callers have gone."""
        batch: list[BatchItem[Value, Result]] = []
        fits = self.make_fit_check()
        while self.waiting:
            item = self.waiting[0]
            is_gone = item.result.done()
            if not is_gone and not fits(item) and batch:
                break
            self.waiting.popleft()
            self.weight -= item.weight
            if not is_gone:
                batch.append(item)
        self.clear_ready_unless_full()
        return batch

    def add_weight_and_check_ready(self, item: BatchItem[Value, Result]) -> None:
        """Add the weight of a waiting item, and set `ready` if the batch need not wait any longer."""
        self.weight += item.weight
        if self.is_ready():
            self.ready.set()

    def clear_ready_unless_full(self) -> None:
        """Clear `ready`, unless what is left makes a full batch."""
        if not self.is_ready():
            self.ready.clear()

    async def wait_until_ready(self, seconds: float) -> bool:
        """Wait until `ready` is set; return False if it was not set in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.ready.wait()
        return False

    def is_ready(self) -> bool:
        """Return whether the waiting items should be sent at once; by default `wait_for_batch` alone decides."""
        return False

    @abstractmethod
    def make_fit_check(self) -> Callable[[BatchItem[Value, Result]], bool]:
        """Start an empty batch; return a function that adds an item to it and says whether it fits."""

    async def wait_for_batch(self) -> None:
        """Wait for further items before a batch is sent; by default it is sent at once."""
        return

    @abstractmethod
    async def send_batch(self, batch: list[BatchItem[Value, Result]]) -> None:
        """Send a batch and resolve each item; an error that this raises rejects the items left without a result."""

    def on_idle(self) -> None:
        """Do what is due when no item is waiting any more."""
        return

    async def _send_batches_until_none_waits(self) -> None:
        batch: list[BatchItem[Value, Result]] = []
        try:
            while self.waiting:
                await self.wait_for_batch()
                batch = self.take_batch()
                if not batch:
                    continue
                try:
                    await self.send_batch(batch)
                except Exception as error:  # noqa: BLE001 - every caller gets the error, whatever it is
                    for item in batch:
                        item.reject(error)
        finally:
            self.sending = None
            # Nothing is left, unless this task was cancelled in the middle of a batch.
            for item in (*batch, *self.waiting):
                item.result.cancel()
            self.waiting.clear()
            self.weight = 0
            self.on_idle()


class GrowingPausesUntilRetryTimeout:
    """How long a message is repeated while it is unknown whether it arrived.

    Args:
        service: What has not answered, for the error message.
        error_class: The error that is raised when the window has passed; the caller may try again.
    """

    def __init__(self, service: str, error_class: type[EngineUnresponsive]) -> None:
        self._service = service
        self._error_class = error_class
        self._until = time.monotonic() + RETRY_WINDOW_SECONDS
        self._pause = PAUSE_MIN_SECONDS

    async def pause_before_retry_or_raise(self, cause: Exception, *, is_short: bool = False) -> None:
        """Pause before the next attempt, longer each time.

        Args:
            cause: The error of the last attempt.
            is_short: Whether the message is known to be acceptable again in a few milliseconds.

        Raises:
            EngineUnresponsive: The window has passed; an instance of `error_class`.
        """
        if time.monotonic() >= self._until:
            message = f"{self._service} did not answer in {RETRY_WINDOW_SECONDS:g} s: {cause}"
            raise self._error_class(message) from cause
        if not is_short:
            self._pause = max(self._pause, PAUSE_USUAL_SECONDS)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_MAX_SECONDS)


class UncachedReadByKey(Generic[Key, Result]):
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
        self._batchers: dict[Key, _BatcherOfReadsOfOneKey[Key, Result]] = {}
        # By the hash of their keys: these are secrets, which need not stay in memory.
        self._last: dict[int, Result] = {}

    async def read_anew(self, key: Key) -> Result:
        """Return the value of a key by a read that starts after this call."""
        return await self.queue_read_after_current(key)

    def queue_read_after_current(self, key: Key) -> asyncio.Future[Result]:
        """Return the future value of a key by a read that starts after this call."""
        batcher = self._batchers.get(key)
        if batcher is None:
            read = self._read_and_remember
            batcher = self._batchers[key] = _BatcherOfReadsOfOneKey(key, read, self._pause_seconds, self._batchers)
        return batcher.submit(key)

    def guess(self, key: Key) -> Result | None:
        """Return what the last read of a key most likely found, however long ago; None without one."""
        return self._last.get(hash(key))

    async def _read_and_remember(self, key: Key) -> Result:
        result = await self._read(key)
        if len(self._last) >= GUESSES_MAX:
            self._last.clear()
        self._last[hash(key)] = result
        return result


class _BatcherOfReadsOfOneKey(AbstractBatcher[Key, Result]):
    """The callers that wait for one key."""

    def __init__(
        self,
        key: Key,
        read: Callable[[Key], Awaitable[Result]],
        pause_seconds: float,
        batchers: dict[Key, _BatcherOfReadsOfOneKey[Key, Result]],
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


class BatchedLookup(AbstractBatcher[Key, Result | None]):
    """Look up many keys by one read; callers that come while a read is under way are in the next.

    Args:
        read_all: Reads the values of several keys; keys without a value are left out of its result.
        max_keys: How many different keys one read takes.
        pause_seconds: After a read that several callers shared, wait this long before the next one.
    """

    def __init__(
        self,
        read_all: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Result]]],
        max_keys: int,
        pause_seconds: float = 0.0,
    ) -> None:
        super().__init__()
        self._read_all = read_all
        self._max_keys = max_keys
        self._pause_seconds = pause_seconds

    async def look_up_in_next_batch(self, key: Key) -> Result | None:
        """Return the value of a key by a read that starts after this call; None if it has none."""
        return await self.submit(key)

    def make_fit_check(self) -> Callable[[BatchItem[Key, Result | None]], bool]:
        """See base class. Callers that ask for the same key count once."""
        keys: set[Key] = set()

        def count_and_check_fit(item: BatchItem[Key, Result | None]) -> bool:
            keys.add(item.value)
            return len(keys) <= self._max_keys

        return count_and_check_fit

    async def send_batch(self, batch: list[BatchItem[Key, Result | None]]) -> None:
        """See base class."""
        found = await self._read_all(list(dict.fromkeys(item.value for item in batch)))
        for item in batch:
            item.resolve(found.get(item.value))
        if self._pause_seconds and len(batch) > 1:
            await asyncio.sleep(self._pause_seconds)


class CachedRead(Generic[Result]):
    """Read at most once in `seconds`; callers that come during a read wait for its result.

    Args:
        seconds: How long a result is kept, however short its read was.
        kept_max_seconds: How long one is kept whose read took long.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Result]],
        seconds: float = FRESH_SECONDS,
        kept_max_seconds: float = KEPT_MAX_SECONDS,
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._kept_max_seconds = kept_max_seconds
        self._fresh_until = 0.0
        self._reading: asyncio.Task[Result] | None = None

    async def get_fresh_or_read(self) -> Result:
        """Return the last result while it is fresh, otherwise a new one; a failed read fails for all who wait."""
        if self._reading is None or (self._reading.done() and time.monotonic() >= self._fresh_until):
            self._reading = asyncio.create_task(self._read_and_set_freshness())
        return await asyncio.shield(self._reading)

    async def get_or_none_on_outage(self) -> Result | None:
        """Return the result as `get_fresh_or_read` does; None while a component that it is read from does not serve."""
        try:
            return await self.get_fresh_or_read()
        except Exception as error:
            if not is_outage(error):
                raise
            return None

    async def _read_and_set_freshness(self) -> Result:
        started = time.monotonic()
        self._fresh_until = started + self._seconds
        result = await self._read()
        now = time.monotonic()
        # A failure is not kept: what has ended would be told for twenty times as long as it lasted.
        self._fresh_until = max(self._fresh_until, now + min(self._kept_max_seconds, COST_FACTOR * (now - started)))
        return result
