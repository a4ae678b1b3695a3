"""Attempts that did not end a task: the last ten, and how many came before them.

A task stores them as one flat tuple of integers, empty while there was no such attempt: the number of attempts left
out, then three numbers for each attempt (when it was held, its duration, its outcome). A trailing number is the start
of the attempt under way, if `modify_time` no longer says it. Times are milliseconds since the task was created.

No decision of a lane depends on them, so a history from before they were stored replays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from domain.tasks.messages import Task

ATTEMPTS_MAX: Final = 10

_NUMBERS: Final = 3
_WITH_ONE_UNDER_WAY: Final = 2
_SMALLER_LIMITS: Final = (ATTEMPTS_MAX, 5, 2, 1, 0)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[int, ...]).decode


class AttemptOutcome(IntEnum):
    """Why an attempt ended without ending its task."""

    FAILED = 1
    TIMED_OUT = 2
    NEXT_STAGE = 3
    PUT_BACK = 4


class TaskAttempt(NamedTuple):
    """An attempt that did not end its task; times are milliseconds since 1970."""

    held_time: int
    end_time: int
    outcome: int


def list_attempts(task: Task) -> tuple[list[TaskAttempt], int]:
    """Return the stored attempts, oldest first, and the number of earlier ones that were left out."""
    row = task.attempts
    if not row:
        return [], 0
    indexes = range(1, len(row) - _NUMBERS + 1, _NUMBERS)
    starts = [(task.create_time + row[at], row[at + 1], row[at + 2]) for at in indexes]
    return [TaskAttempt(start, start + duration, outcome) for start, duration, outcome in starts], row[0]


def to_archive(task: Task) -> str:
    """Encode the attempts for the archive; empty if there were none."""
    return _encode(task.attempts).decode() if len(task.attempts) > _WITH_ONE_UNDER_WAY else ""


def from_archive(text: str) -> tuple[int, ...]:
    """Decode the attempts of an archived task."""
    return _decode(text) if text else ()


def end_attempt(task: Task, now: int, outcome: AttemptOutcome) -> None:
    """Record the end of a running task's attempt; call it before `modify_time` changes."""
    save_start(task)
    *before, start = task.attempts
    row = (*before, start, now - task.create_time - start, int(outcome))
    task.attempts = _truncate(row, ATTEMPTS_MAX)


def save_start(task: Task) -> None:
    """Record when a running task was held, before a change of `modify_time` overwrites it."""
    row = task.attempts or (0,)
    if len(row) % _NUMBERS != _WITH_ONE_UNDER_WAY:
        task.attempts = (*row, task.modify_time - task.create_time)


def without_attempts(task: Task) -> Task:
    """Return the task without its attempts, which a worker does not need."""
    return replace(task, attempts=()) if task.attempts else task


def count_bytes(task: Task) -> int:
    """Return the JSON bytes of a task's attempts; the empty tuple is part of every task's weight."""
    return len(_encode(task.attempts)) if task.attempts else 0


def shrink_attempts(tasks: Iterable[Task], bytes_max: int) -> None:
    """Drop the oldest attempts of all tasks until the rest takes at most `bytes_max` bytes."""
    changed = [task for task in tasks if task.attempts]
    for limit in _SMALLER_LIMITS:
        for task in changed:
            task.attempts = _truncate(task.attempts, limit)
        if sum(map(count_bytes, changed)) <= bytes_max:
            return


def _truncate(row: tuple[int, ...], limit: int) -> tuple[int, ...]:
    left_out = (len(row) - 1) // _NUMBERS - limit
    if left_out <= 0:
        return row if limit or row[0] else ()
    return (row[0] + left_out, *row[1 + _NUMBERS * left_out :])
