"""Groups: the requests for one lane wait for each other, for some milliseconds, and go over as one message.

Who is answered together comes again together, so that a group waits for those of the one before it. Where many ask, it
leaves on a beat of the clock that all processes go by.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

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


@dataclass(slots=True)
class Wish:
    """One operation of one request."""

    what: Any
    weight: int
    answer: asyncio.Future[Any]


class Gathering:
    """The requests for one lane: those that wait for the next group, and how the last ones went."""

    def __init__(self, type_: str, pos: int) -> None:
        self.type = type_
        self.pos = pos
        self.waiting: deque[Wish] = deque()
        self.weight = 0
        self.ready = asyncio.Event()
        self.asked_at = self.answered_at = 0.0
        self.taken = self.come = 0
        self.is_full = False
        self.rules: Rules | None = None
        self.version = 0
        self.serving: asyncio.Task[None] | None = None

    def put(self, wish: Wish) -> None:
        """It waits for the next group."""
        self.waiting.append(wish)
        self.come += 1
        self._grow(wish)

    def put_back(self, wishes: list[Wish]) -> None:
        """Those that the last answer had no room for are the first in the next."""
        self.waiting.extendleft(reversed(wishes))
        for wish in wishes:
            self._grow(wish)

    def take(self) -> list[Wish]:
        """The next group: in order, and no more than one message carries. Who has gone is left out."""
        group: list[Wish] = []
        room = GROUP_MAX_BYTES - FRAME_BYTES
        while self.waiting and len(group) < GROUP_MAX_OPERATIONS and self.waiting[0].weight <= room:
            wish = self.waiting.popleft()
            self.weight -= wish.weight
            if not wish.answer.done():
                room -= wish.weight
                group.append(wish)
        self.taken = len(group)
        self.asked_at = time.monotonic()
        self._begin_anew()
        return group

    def fill(self) -> None:
        """It takes no more tasks: those that wait to be created need not ask."""
        self.is_full = True
        waiting, self.waiting, self.weight = self.waiting, deque(), 0
        for wish in waiting:
            if not is_new(wish.what):
                self.waiting.append(wish)
                self.weight += wish.weight
            elif not wish.answer.done():
                wish.answer.set_result(Code.FULL)

    def answered(self) -> None:
        """The group has its answers, and those who got them may come again."""
        self.answered_at = time.monotonic()
        self._begin_anew()

    async def gather(self, spacing: float) -> None:
        """Let requests come together: longer where many came last time, but not longer than until all are back."""
        if time.monotonic() - self.answered_at > LULL_SECONDS:
            self.taken = 0
        if self.taken < MANY:
            due = self.asked_at + spacing * self.taken / MANY
            await self._wait(max(PAUSE_SECONDS, due - time.monotonic()))
            return
        left = max(PAUSE_SECONDS, self.answered_at + RETURN_SECONDS - time.monotonic())
        if await self._wait(until_beat(time.time(), left, spacing, self.pos * BEAT_SECONDS)):
            await asyncio.sleep(until_beat(time.time(), 0.0, BEAT_SECONDS))

    async def _wait(self, seconds: float) -> bool:
        """Whether there is no need to wait any longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.ready.wait()
        return False

    def _grow(self, wish: Wish) -> None:
        self.weight += wish.weight
        if self._is_ready():
            self.ready.set()

    def _begin_anew(self) -> None:
        self.come = 0
        if not self._is_ready():
            self.ready.clear()

    def _is_ready(self) -> bool:
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
