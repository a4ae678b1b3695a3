"""Batches for lanes: concurrent requests for one lane wait some milliseconds for each other and leave as one message.

Callers that are answered together usually send their next request together, so a batch waits for those of the previous
one. Large batches leave at fixed times of the wall clock, the same in all processes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from api.batching import Batcher, BatchItem
from domain.tasks.messages import (
    BATCH_MAX_BYTES,
    BATCH_MAX_OPERATIONS,
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    OperationCode,
    Rules,
    SetOperation,
    TaskFlags,
)
from domain.tasks.names import LaneName

WAIT_SECONDS = 0.002
"""How long a single request waits for others."""
TICK_SECONDS = 0.01
"""Large batches leave at multiples of this time: two batches that reach the engine together cost a third less each."""
IDLE_SECONDS = 0.06
"""After this time without a request, a batch no longer waits for the callers of the previous one."""
RETURN_SECONDS = 0.012
"""How long after its reply a lane waits for the callers to send their next request."""
LARGE_BATCH = 8
FRAME_BYTES = 1_000
"""Bytes of a batch around its operations."""

_encode = msgspec.json.Encoder().encode
_DECODERS = {
    kind: msgspec.json.Decoder(kind)
    for kind in (CreateOperation, HoldOperation, SetOperation, HeartbeatOperation, Rules)
}


class LaneBatcher(Batcher[Any, Any]):
    """Requests for one lane that wait for the next batch, and measurements of the previous ones.

    Args:
        send: Sends a batch to the lane and answers its requests.
        get_interval: Returns the seconds between two large batches.
        handle_idle: Called when no request is waiting any more.
    """

    def __init__(
        self,
        name: LaneName,
        send: Callable[[LaneBatcher, list[BatchItem[Any, Any]]], Awaitable[None]],
        get_interval: Callable[[LaneBatcher], float],
        handle_idle: Callable[[LaneName], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.type, self.pos = name
        self._send = send
        self._get_interval = get_interval
        self._handle_idle = handle_idle
        self.sent_at = self.answered_at = 0.0
        self.last_size = self.arrived = 0
        self.is_full = False
        self.rules: Rules | None = None
        self.version = 0

    def submit(self, value: Any, weight: int = 1) -> asyncio.Future[Any]:
        """See base class."""
        self.arrived += 1
        return super().submit(value, weight)

    def make_fit_check(self) -> Callable[[BatchItem[Any, Any]], bool]:
        """See base class. A batch is limited to one message."""
        count, bytes_left = 0, BATCH_MAX_BYTES - FRAME_BYTES

        def fits(request: BatchItem[Any, Any]) -> bool:
            nonlocal count, bytes_left
            count, bytes_left = count + 1, bytes_left - request.weight
            return count <= BATCH_MAX_OPERATIONS and bytes_left >= 0

        return fits

    def take_batch(self) -> list[BatchItem[Any, Any]]:
        """See base class."""
        self.arrived = 0
        batch = super().take_batch()
        self.last_size = len(batch)
        self.sent_at = time.monotonic()
        self.clear_ready()
        return batch

    def mark_full(self) -> None:
        """Record that the lane accepts no more tasks, and answer the waiting creates with that."""
        self.is_full = True
        waiting, self.waiting, self.weight = self.waiting, deque(), 0
        for request in waiting:
            if not is_new(request.value):
                self.waiting.append(request)
                self.weight += request.weight
            else:
                request.resolve(OperationCode.FULL)

    async def wait_for_batch(self) -> None:
        """See base class. After a large batch it waits longer, but not longer than until all its callers are back."""
        interval = self._get_interval(self)
        if time.monotonic() - self.answered_at > IDLE_SECONDS:
            self.last_size = 0
        if self.last_size < LARGE_BATCH:
            due = self.sent_at + interval * self.last_size / LARGE_BATCH
            await self.wait_until_ready(max(WAIT_SECONDS, due - time.monotonic()))
            return
        left = max(WAIT_SECONDS, self.answered_at + RETURN_SECONDS - time.monotonic())
        if await self.wait_until_ready(compute_tick_delay(time.time(), left, interval, self.pos * TICK_SECONDS)):
            await asyncio.sleep(compute_tick_delay(time.time(), 0.0, TICK_SECONDS))

    async def send_batch(self, batch: list[BatchItem[Any, Any]]) -> None:
        """See base class."""
        try:
            await self._send(self, batch)
        finally:
            self.answered_at = time.monotonic()
            self.arrived = 0
            self.clear_ready()

    def on_idle(self) -> None:
        """See base class."""
        self._handle_idle(self.name)

    def is_ready(self) -> bool:
        """See base class. A batch leaves when it is full, or when all callers of the previous one are back."""
        is_full = len(self.waiting) >= BATCH_MAX_OPERATIONS or self.weight >= BATCH_MAX_BYTES - FRAME_BYTES
        return is_full or self.arrived >= self.last_size > 1


def validate_operation(operation: Any) -> int:
    """Return the encoded size of an operation. One that the lane could not decode must not fail the whole batch.

    Raises:
        msgspec.ValidationError: The lane could not decode it.
    """
    encoded = _encode(operation)
    if decoder := _DECODERS.get(type(operation)):
        decoder.decode(encoded)
    return len(encoded)


def is_new(operation: object) -> bool:
    """Return whether an operation creates a task that the lane cannot have yet."""
    return isinstance(operation, CreateOperation) and not operation.flags & TaskFlags.KEYED


def compute_tick_delay(now: float, seconds: float, interval: float, offset: float = 0.0) -> float:
    """Return the delay of at least `seconds` that ends at a multiple of `interval`, shifted by `offset`."""
    return seconds + (offset - now - seconds) % interval
