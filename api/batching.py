"""Batching: requests that arrive while a batch is under way are sent together in the next one.

Every group commit of the API subclasses `Batcher`, which says how long requests wait for each other
(`wait_for_batch`), how many fit into a batch (`make_fit_check`) and how they are answered (`send_batch`). Requests that
may be repeated are repeated within a `RetryWindow`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from infra.outages import EngineUnresponsive

Value = TypeVar("Value")
Result = TypeVar("Result")

RETRY_WINDOW_SECONDS: Final = 30.0
"""How long a batch is repeated before its callers get an error."""
PAUSE_MIN_SECONDS: Final = 0.01
PAUSE_USUAL_SECONDS: Final = 0.05
PAUSE_MAX_SECONDS: Final = 0.2


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


class Batcher(ABC, Generic[Value, Result]):
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
        self.add_weight(item)
        if self.sending is None:
            self.sending = asyncio.create_task(self._send_all())
        return item.result

    def requeue(self, items: list[BatchItem[Value, Result]]) -> None:
        """Put items that a batch could not hold at the front of the next one."""
        self.waiting.extendleft(reversed(items))
        for item in items:
            self.add_weight(item)

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
        self.clear_ready()
        return batch

    def add_weight(self, item: BatchItem[Value, Result]) -> None:
        """Add the weight of a waiting item, and set `ready` if the batch need not wait any longer."""
        self.weight += item.weight
        if self.is_ready():
            self.ready.set()

    def clear_ready(self) -> None:
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

    async def _send_all(self) -> None:
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


class RetryWindow:
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

    async def wait(self, cause: Exception, *, soon: bool = False) -> None:
        """Pause before the next attempt, longer each time.

        Args:
            cause: The error of the last attempt.
            soon: Whether the message is known to be acceptable again in a few milliseconds.

        Raises:
            EngineSilent: The window has passed; an instance of `error_class`.
        """
        if time.monotonic() >= self._until:
            message = f"{self._service} did not answer in {RETRY_WINDOW_SECONDS:g} s: {cause}"
            raise self._error_class(message) from cause
        if not soon:
            self._pause = max(self._pause, PAUSE_USUAL_SECONDS)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_MAX_SECONDS)
