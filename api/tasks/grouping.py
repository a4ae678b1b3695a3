"""Groups: the requests for one lane wait for each other, for some milliseconds, and go over as one message.

Who is answered together comes again together, so that a group waits for those of the one before it. Where many ask, it
leaves on a beat of the clock that all processes go by.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from api.batching import Batcher, BatchItem
from api.tasks.resting import LaneName
from domain.tasks.messages import (
    GROUP_MAX_BYTES,
    GROUP_MAX_OPERATIONS,
    Beat,
    Code,
    Hold,
    NewTask,
    Refs,
    Rules,
    Setting,
)

PAUSE_SECONDS = 0.002
"""How long a lone request waits for company."""
BEAT_SECONDS = 0.01
"""Groups of many leave on beats of the clock that all processes go by: of two that come at the same time each costs the
engine a third less."""
LULL_SECONDS = 0.06
"""Whoever has not come again after so long is not waited for."""
RETURN_SECONDS = 0.012
"""How long a lane waits, however late its answer was, for those who got it and come again."""
MANY = 8
FRAME_BYTES = 1_000
"""What a group has around its operations."""

_encode = msgspec.json.Encoder().encode
_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in (NewTask, Hold, Setting, Beat, Rules)}


class Gathering(Batcher[Any, Any]):
    """The requests for one lane: those that wait for the next group, and how the last ones went.

    Args:
        hand_over: Hands a group over to the lane, and answers its requests.
        spacing: How many seconds pass from one group of many to the next.
        rest: Is told when nothing waits any more.
    """

    def __init__(
        self,
        name: LaneName,
        hand_over: Callable[[Gathering, list[BatchItem[Any, Any]]], Awaitable[None]],
        spacing: Callable[[Gathering], float],
        rest: Callable[[LaneName], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.type, self.pos = name
        self._hand_over = hand_over
        self._spacing = spacing
        self._rest = rest
        self.asked_at = self.answered_at = 0.0
        self.taken = self.come = 0
        self.is_full = False
        self.rules: Rules | None = None
        self.version = 0

    def submit(self, value: Any, weight: int = 1) -> asyncio.Future[Any]:
        """See base class."""
        self.come += 1
        return super().submit(value, weight)

    def make_fit_check(self) -> Callable[[BatchItem[Any, Any]], bool]:
        """See base class. A group is no more than one message carries."""
        count, room = 0, GROUP_MAX_BYTES - FRAME_BYTES

        def has_room(request: BatchItem[Any, Any]) -> bool:
            nonlocal count, room
            count, room = count + 1, room - request.weight
            return count <= GROUP_MAX_OPERATIONS and room >= 0

        return has_room

    def take_batch(self) -> list[BatchItem[Any, Any]]:
        """See base class."""
        self.come = 0
        group = super().take_batch()
        self.taken = len(group)
        self.asked_at = time.monotonic()
        self.clear_ready()
        return group

    def fill(self) -> None:
        """Note that the lane takes no more tasks: those that wait to be created need not ask."""
        self.is_full = True
        waiting, self.waiting, self.weight = self.waiting, deque(), 0
        for request in waiting:
            if not is_new(request.value):
                self.waiting.append(request)
                self.weight += request.weight
            else:
                request.resolve(Code.FULL)

    async def wait_for_batch(self) -> None:
        """Let requests come together: longer where many came last time, but not longer than until all are back."""
        spacing = self._spacing(self)
        if time.monotonic() - self.answered_at > LULL_SECONDS:
            self.taken = 0
        if self.taken < MANY:
            due = self.asked_at + spacing * self.taken / MANY
            await self.wait_until_ready(max(PAUSE_SECONDS, due - time.monotonic()))
            return
        left = max(PAUSE_SECONDS, self.answered_at + RETURN_SECONDS - time.monotonic())
        if await self.wait_until_ready(until_beat(time.time(), left, spacing, self.pos * BEAT_SECONDS)):
            await asyncio.sleep(until_beat(time.time(), 0.0, BEAT_SECONDS))

    async def send_batch(self, batch: list[BatchItem[Any, Any]]) -> None:
        """See base class. Those who get their answers may come again."""
        try:
            await self._hand_over(self, batch)
        finally:
            self.answered_at = time.monotonic()
            self.come = 0
            self.clear_ready()

    def on_idle(self) -> None:
        """See base class."""
        self._rest(self.name)

    def is_ready(self) -> bool:
        """See base class. A group that is full leaves, and one that all whom the last answered have joined."""
        is_full = len(self.waiting) >= GROUP_MAX_OPERATIONS or self.weight >= GROUP_MAX_BYTES - FRAME_BYTES
        return is_full or self.come >= self.taken > 1


def checked(what: Any) -> int:
    """How many bytes an operation has. One that its lane could not read must spoil no group of others.

    Raises:
        msgspec.ValidationError: It is such a one.
    """
    encoded = _encode(what)
    if decoder := _DECODERS.get(type(what)):
        decoder.decode(encoded)
    return len(encoded)


def is_new(what: object) -> bool:
    """Whether this creates a task that cannot be there yet."""
    return isinstance(what, NewTask) and not what.refs & Refs.KEYED


def until_beat(now: float, seconds: float, spacing: float, offset: float = 0.0) -> float:
    """At least so many seconds, and from there on up to the next beat, which is the same for whoever goes by it."""
    return seconds + (offset - now - seconds) % spacing
