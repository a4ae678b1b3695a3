"""What a task remembers of attempts that did not end it: the last ten, and how many there were before those.

They stand in the task as one flat row of numbers, which is empty as long as there was none: how many are left out, then
for each attempt when it was held, for how long, and its outcome. Behind them comes when the attempt under way was held,
if that cannot be told from the task itself any more. Moments are milliseconds since the task was created.

Nothing that a lane decides depends on them: a lane that is replayed from before they were kept decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from domain.tasks.messages import Task

KEPT_MAX: Final = 10

_NUMBERS: Final = 3
_WITH_ONE_UNDER_WAY: Final = 2
_FEWER: Final = (KEPT_MAX, 5, 2, 1, 0)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[int, ...]).decode


class Outcome(IntEnum):
    """How an attempt came to be over."""

    FAILED = 1
    TIMED_OUT = 2
    NEXT_STAGE = 3
    PUT_BACK = 4


class Attempt(NamedTuple):
    """An attempt that did not end its task; moments are milliseconds since 1970."""

    held_time: int
    end_time: int
    outcome: int


def read(task: Task) -> tuple[list[Attempt], int]:
    """The attempts that are remembered, the first one first, and how many came before them."""
    row = task.attempts
    if not row:
        return [], 0
    held = range(1, len(row) - _NUMBERS + 1, _NUMBERS)
    moments = [(task.create_time + row[at], row[at + 1], row[at + 2]) for at in held]
    return [Attempt(moment, moment + lasted, outcome) for moment, lasted, outcome in moments], row[0]


def written(task: Task) -> str:
    """The row as the archive keeps it: a text that is empty if there was none."""
    return _encode(task.attempts).decode() if len(task.attempts) > _WITH_ONE_UNDER_WAY else ""


def from_archive(text: str) -> tuple[int, ...]:
    """The row of a task that has ended."""
    return _decode(text) if text else ()


def note(task: Task, now: int, outcome: Outcome) -> None:
    """A running task's attempt is over; to be told before `modify_time` is changed."""
    began(task)
    *before, held = task.attempts
    row = (*before, held, now - task.create_time - held, int(outcome))
    task.attempts = _last(row, KEPT_MAX)


def began(task: Task) -> None:
    """A running task is about to be changed, so that `modify_time` will not tell any more when it was held."""
    row = task.attempts or (0,)
    if len(row) % _NUMBERS != _WITH_ONE_UNDER_WAY:
        task.attempts = (*row, task.modify_time - task.create_time)


def without(task: Task) -> Task:
    """A task as it is given out: whoever works on it needs to know nothing of attempts."""
    return replace(task, attempts=()) if task.attempts else task


def size(task: Task) -> int:
    """Bytes of JSON that a task's attempts take; a task without any has room for the empty row."""
    return len(_encode(task.attempts)) if task.attempts else 0


def fit(tasks: Iterable[Task], room: int) -> None:
    """Leave out the older ones of all tasks, until what is left takes no more than so many bytes."""
    tried = [task for task in tasks if task.attempts]
    for most in _FEWER:
        for task in tried:
            task.attempts = _last(task.attempts, most)
        if sum(map(size, tried)) <= room:
            return


def _last(row: tuple[int, ...], most: int) -> tuple[int, ...]:
    left_out = (len(row) - 1) // _NUMBERS - most
    if left_out <= 0:
        return row if most or row[0] else ()
    return (row[0] + left_out, *row[1 + _NUMBERS * left_out :])
