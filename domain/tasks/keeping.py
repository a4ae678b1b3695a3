"""When a lane has something written down: within a second after it changed, in batches, as rarely as that allows."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from domain.tasks.book import Book
from domain.tasks.carrying import KeepOrder

PAUSE_MS: Final = 1_000
"""Between two steps of a lane; its head lags so long at most."""
BATCH_MAX_BYTES: Final = 300_000

_Facts: TypeAlias = tuple[int | None, int, int, int, int, int, int, int, bool]


class Pace(Struct, frozen=True):
    """How often a lane has something written down, and how much of it."""

    batch_tasks: int
    full_pause_ms: int
    """From one step to the next, where a whole batch waits."""
    early_ms: int
    """A step is taken so much before its time if a group comes: it needs no timer, and no turn of its own."""


FIRST_PACE: Final = Pace(batch_tasks=500, full_pause_ms=500, early_ms=0)
"""That of the first lanes, whose histories tell what they did when."""
PACE: Final = Pace(batch_tasks=1_500, full_pause_ms=1_000, early_ms=150)


class Keeping:
    """What a run of a lane has had written down. At first nothing is known, and all is told anew."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._begun_at = 0
        self._told: _Facts | None = None

    def next_at(self, book: Book) -> int | None:
        """When the next step is due, if there is anything to tell."""
        if self._told is None:
            return 0
        if book.ended >= self.pace.batch_tasks:
            return self._begun_at + self.pace.full_pause_ms
        if book.ended or self._told != _facts(book):
            return self._begun_at + PAUSE_MS
        return None

    def is_due(self, book: Book, now: int) -> bool:
        """Whether the next step may be taken."""
        at = self.next_at(book)
        return at is not None and at - self.pace.early_ms <= now

    def begin(self, book: Book, type_: str, pos: int, now: int) -> KeepOrder:
        """What is to be written down now."""
        is_first = self._told is None
        self._begun_at, self._told = now, _facts(book)
        ended = book.to_archive(self.pace.batch_tasks, BATCH_MAX_BYTES)
        return KeepOrder(type=type_, pos=pos, head=book.head(), ended=ended, is_first=is_first)


def _facts(book: Book) -> _Facts:
    """What is worth telling. When leases end is not: a holder that comes early asks once in vain."""
    head = book.head()
    return (
        *(head.next_order_time, head.due, head.pending, head.running),
        *(head.success, head.failed, head.cancelled, head.held, head.full),
    )
