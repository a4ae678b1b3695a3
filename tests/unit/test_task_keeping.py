"""When a lane has something written down: within a second, in batches, with a group that comes by rather than alone."""

from __future__ import annotations

import pytest

from domain.tasks.book import Book
from domain.tasks.carrying import Carried
from domain.tasks.keeping import FIRST_PACE, PACE, PAUSE_MS, Keeping, Pace
from domain.tasks.messages import Head, Hold, NewTask, Rules, Setting, Status

NOW = 1_000_000


@pytest.fixture
def book() -> Book:
    """A lane with three tasks that have ended."""
    book = Book(Rules(lane_max_tasks=10), Carried(head=Head(), now=NOW, leases=0, tasks=[], senders=[]))
    for number in range(4):
        book.create(NewTask(f"{number:032x}", "", "text"))
    for task in book.hold(Hold(3), 1_000_000):
        book.set(Setting(task.key, Status.SUCCESS, task.lease))
    return book


@pytest.mark.parametrize(
    ("pace", "next_at", "due_at"),
    [
        (Pace(batch_tasks=4, full_pause_ms=300, early_ms=0), PAUSE_MS, PAUSE_MS),
        (Pace(batch_tasks=3, full_pause_ms=300, early_ms=0), 300, 300),
        (Pace(batch_tasks=3, full_pause_ms=300, early_ms=50), 300, 250),
        (FIRST_PACE, PAUSE_MS, PAUSE_MS),
        (PACE, PAUSE_MS, PAUSE_MS - PACE.early_ms),
    ],
)
def test_a_step_is_taken_when_its_time_has_come(book: Book, pace: Pace, next_at: int, due_at: int) -> None:
    """Sooner where a batch is full, and a little before its time if the lane is asked for something anyway."""
    keeping = Keeping(pace)
    assert keeping.is_due(book, NOW), "at first nobody knows of the lane"
    keeping.begin(book, "t", 1, NOW)

    assert keeping.next_at(book) == NOW + next_at
    assert not keeping.is_due(book, NOW + due_at - 1)
    assert keeping.is_due(book, NOW + due_at)


def test_no_step_is_taken_for_nothing(book: Book) -> None:
    """What was told and has not changed is not told again."""
    keeping = Keeping(PACE)
    kept = keeping.begin(book, "t", 1, NOW)
    book.drop([task.key for task in kept.ended])

    assert (len(kept.ended), kept.is_first) == (3, True)
    assert keeping.next_at(book) is None
    assert not keeping.is_due(book, NOW + 10 * PAUSE_MS)


def test_no_batch_is_larger_than_the_pace_allows(book: Book) -> None:
    """The rest comes with the next."""
    kept = Keeping(Pace(batch_tasks=2, full_pause_ms=0, early_ms=0)).begin(book, "t", 1, NOW)

    assert [task.key for task in kept.ended] == [f"{0:032x}", f"{1:032x}"]
