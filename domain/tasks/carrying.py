"""What a lane is started with, what it carries on when its history gets long, what it has written down, its end."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from domain.tasks.messages import Head, Rules, Task

STATE_MAX_BYTES: Final = 935_000
"""Of tasks that a lane carries; senders get what is left of 1 MB."""
FULL_BYTES: Final = 850_000
"""From here on a lane takes no more tasks; the rest is for texts that its tasks get from workers."""
SENDERS_MAX: Final = 64
SENDERS_MAX_BYTES: Final = 60_000


class Answered(Struct, array_like=True):
    """The last group of a sender, and as much of the answer as it takes to give it again."""

    sender: str
    number: int
    creates: str
    sets: str
    beats: str
    cancels: str
    first_lease: int
    holds: list[int]
    """How many tasks each hold got; their leases are numbered one after the other."""


class Carried(Struct, array_like=True):
    """All that a lane knows."""

    head: Head
    now: int
    leases: int
    tasks: list[Task]
    """Pending ones come in the order of their queue."""
    senders: list[Answered]
    gone: list[str] = []
    """The keys of archived tasks that may be created again and must not be."""


class LaneOrder(Struct):
    """The workflow's argument."""

    type: str
    pos: int
    rules: Rules
    carried: Carried | None = None


class LaneEnd(Struct):
    """The workflow's result: how all its tasks ended."""

    success: int
    failed: int
    cancelled: int = 0


class KeepOrder(Struct):
    """What a lane has written down: how it stands, and tasks that have ended."""

    type: str
    pos: int
    head: Head
    ended: list[Task]
    is_first: bool = False
    """The lane has just been begun."""

    @property
    def is_untouched(self) -> bool:
        """Nobody has asked the lane for anything yet."""
        return self.is_first and not self.head.number


class Kept(Struct):
    """That it is written down."""

    is_past: bool = False
    """The lane's type has done with this position already: a lane by its name must take no tasks."""


class CloseOrder(Struct):
    """A lane is done: all that were in it have ended and are written down."""

    type: str
    pos: int
