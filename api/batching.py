"""Batches: requests that come while one batch is under way go over together in the next.

Every group commit of the API is one of these: it says how long requests wait for each other (`gather`), how many go
over at once (`measure`) and how they are answered (`flush`). Who asks what may be asked again does so with `Patience`.
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

from infra.outages import EngineSilent

What = TypeVar("What")
Answer = TypeVar("Answer")

PATIENCE_SECONDS: Final = 30.0
"""How long a batch is handed over again and again before its callers are told to come later."""
SOON_SECONDS: Final = 0.01
AGAIN_SECONDS: Final = 0.05
AGAIN_MAX_SECONDS: Final = 0.2


@dataclass(slots=True)
class Request(Generic[What, Answer]):
    """One request, until it has its answer."""

    what: What
    weight: int
    answer: asyncio.Future[Answer]
    """A future for each: who stops waiting does not stop the question of the others."""

    def tell(self, answer: Answer) -> None:
        """Answer it, unless its caller has gone."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Raise an error where it is waited for."""
        if not self.answer.done():
            self.answer.set_exception(error)
            # Its caller may go before being told; then nobody else looks at it.
            self.answer.exception()


class Batcher(ABC, Generic[What, Answer]):
    """Hands requests over in batches, one at a time, for as long as any wait."""

    def __init__(self) -> None:
        self.waiting: deque[Request[What, Answer]] = deque()
        self.weight = 0
        self.ready = asyncio.Event()
        """Set while there is no need to wait for more requests."""
        self.serving: asyncio.Task[None] | None = None

    def put(self, what: What, weight: int = 1) -> asyncio.Future[Answer]:
        """Put a request into the next batch; returns its answer to come."""
        request = Request(what, weight, asyncio.get_running_loop().create_future())
        self.waiting.append(request)
        self.add(request)
        if self.serving is None:
            self.serving = asyncio.create_task(self._serve())
        return request.answer

    def put_back(self, requests: list[Request[What, Answer]]) -> None:
        """Make those that a batch had no room for the first in the next."""
        self.waiting.extendleft(reversed(requests))
        for request in requests:
            self.add(request)

    def take(self) -> list[Request[What, Answer]]:
        """Take the next batch: in order, without those whose callers have gone, and at least one."""
        batch: list[Request[What, Answer]] = []
        has_room = self.measure()
        while self.waiting:
            request = self.waiting[0]
            is_gone = request.answer.done()
            if not is_gone and not has_room(request) and batch:
                break
            self.waiting.popleft()
            self.weight -= request.weight
            if not is_gone:
                batch.append(request)
        self.clear_ready()
        return batch

    def add(self, request: Request[What, Answer]) -> None:
        """Count a request that waits, and note whether it is the last that was to be waited for."""
        self.weight += request.weight
        if self.is_ready():
            self.ready.set()

    def clear_ready(self) -> None:
        """Wait again, unless what is left needs no company."""
        if not self.is_ready():
            self.ready.clear()

    async def wait_until_ready(self, seconds: float) -> bool:
        """Wait until there is no need to any more; whether that was so in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.ready.wait()
        return False

    def is_ready(self) -> bool:
        """Whether what waits needs no company; by default it waits for as long as `gather` says."""
        return False

    @abstractmethod
    def measure(self) -> Callable[[Request[What, Answer]], bool]:
        """Begin an empty batch; what is returned says of one request after the other whether it still has room."""

    async def gather(self) -> None:
        """Wait for further requests before a batch leaves; by default it leaves at once."""
        return

    @abstractmethod
    async def flush(self, batch: list[Request[What, Answer]]) -> None:
        """Hand a batch over and answer each of its requests; what this raises is told to those without an answer."""

    def rest(self) -> None:
        """Note that nothing waits any more."""
        return

    async def _serve(self) -> None:
        batch: list[Request[What, Answer]] = []
        try:
            while self.waiting:
                await self.gather()
                batch = self.take()
                if not batch:
                    continue
                try:
                    await self.flush(batch)
                except Exception as error:  # noqa: BLE001 - everybody who asked is told, whatever it was
                    for request in batch:
                        request.fail(error)
        finally:
            self.serving = None
            # None is left, unless this was cancelled in the middle of a batch.
            for request in (*batch, *self.waiting):
                request.answer.cancel()
            self.waiting.clear()
            self.weight = 0
            self.rest()


class Patience:
    """How long and how often the same message is sent again while it is not known whether it arrived.

    Args:
        who: Whose answer is missing, for the error that says so.
        gives_up: What is raised when it is over; the caller may ask again.
    """

    def __init__(self, who: str, gives_up: type[EngineSilent]) -> None:
        self._who = who
        self._gives_up = gives_up
        self._until = time.monotonic() + PATIENCE_SECONDS
        self._pause = SOON_SECONDS

    async def wait(self, hindrance: Exception, *, soon: bool = False) -> None:
        """Pause, longer each time.

        Args:
            soon: Whether it is known that the message may be taken in some milliseconds.

        Raises:
            EngineSilent: Patience is over; as the class that was given.
        """
        if time.monotonic() >= self._until:
            message = f"{self._who} did not answer in {PATIENCE_SECONDS:g} s: {hindrance}"
            raise self._gives_up(message) from hindrance
        if not soon:
            self._pause = max(self._pause, AGAIN_SECONDS)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, AGAIN_MAX_SECONDS)
