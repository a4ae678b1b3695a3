"""Attempts of a task: the record of those that did not end it, and whether a result is the current one's.

A task stores the last ten attempts as one flat tuple of integers, empty while there was no such attempt: the number of
attempts left out, then three numbers for each attempt (when it was held, its duration, its outcome). A trailing number
is the start of the attempt under way, if `modify_time` no longer says it. Times are milliseconds since the task was
created.

No decision of a lane depends on them, so a history from before they were stored replays unchanged.

flowSvr's own client sends results without a lease. It writes its attempts into the log of each result: a trace id for
the attempt that ended, and those of earlier attempts. A result belongs to the current holder only if its previous
attempt is the last one in the task's log. A time-out leaves no trace in the log; the retry count shows it, which every
attempt receives and reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from domain.tasks.messages import OperationCode, OperationCodeText, Task, TaskStatus

ATTEMPTS_MAX: Final = 10

_NUMBERS: Final = 3
_WITH_ONE_UNDER_WAY: Final = 2
_SMALLER_LIMITS: Final = (ATTEMPTS_MAX, 5, 2, 1, 0)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[int, ...]).decode


class NonFinalAttemptOutcome(IntEnum):
    """Why an attempt ended without ending its task."""

    FAILED = 1
    TIMED_OUT = 2
    NEXT_STAGE = 3
    PUT_BACK = 4


class NonFinalTaskAttempt(NamedTuple):
    """An attempt that did not end its task; times are milliseconds since 1970."""

    held_time: int
    end_time: int
    outcome: int


def decode_attempts(task: Task) -> tuple[list[NonFinalTaskAttempt], int]:
    """Return the stored attempts, oldest first, and the number of earlier ones that were left out."""
    row = task.attempts
    if not row:
        return [], 0
    indexes = range(1, len(row) - _NUMBERS + 1, _NUMBERS)
    starts = [(task.create_time + row[at], row[at + 1], row[at + 2]) for at in indexes]
    return [NonFinalTaskAttempt(start, start + duration, outcome) for start, duration, outcome in starts], row[0]


def encode_attempts_for_archive(task: Task) -> str:
    """Encode the attempts for the archive; empty if there were none."""
    return _encode(task.attempts).decode() if len(task.attempts) > _WITH_ONE_UNDER_WAY else ""


def decode_attempts_from_archive(text: str) -> tuple[int, ...]:
    """Decode the attempts of an archived task."""
    return _decode(text) if text else ()


def record_attempt_end(task: Task, now: int, outcome: NonFinalAttemptOutcome) -> None:
    """Record the end of a running task's attempt; call it before `modify_time` changes."""
    record_attempt_start_if_missing(task)
    *before, start = task.attempts
    row = (*before, start, now - task.create_time - start, int(outcome))
    task.attempts = _drop_oldest_attempts(row, ATTEMPTS_MAX)


def record_attempt_start_if_missing(task: Task) -> None:
    """Record when a running task was held, before a change of `modify_time` overwrites it."""
    row = task.attempts or (0,)
    if len(row) % _NUMBERS != _WITH_ONE_UNDER_WAY:
        task.attempts = (*row, task.modify_time - task.create_time)


def copy_without_attempts(task: Task) -> Task:
    """Return the task without its attempts, which a worker does not need."""
    return replace(task, attempts=()) if task.attempts else task


def count_attempt_bytes(task: Task) -> int:
    """Return the JSON bytes of a task's attempts; the empty tuple is part of every task's weight."""
    return len(_encode(task.attempts)) if task.attempts else 0


def drop_oldest_attempts(tasks: Iterable[Task], bytes_max: int) -> None:
    """Drop the oldest attempts of all tasks until the rest takes at most `bytes_max` bytes."""
    changed = [task for task in tasks if task.attempts]
    for limit in _SMALLER_LIMITS:
        for task in changed:
            task.attempts = _drop_oldest_attempts(task.attempts, limit)
        if sum(map(count_attempt_bytes, changed)) <= bytes_max:
            return


def _drop_oldest_attempts(row: tuple[int, ...], limit: int) -> tuple[int, ...]:
    left_out = (len(row) - 1) // _NUMBERS - limit
    if left_out <= 0:
        return row if limit or row[0] else ()
    return (row[0] + left_out, *row[1 + _NUMBERS * left_out :])


class ResultWithoutLease(Struct, frozen=True):
    """A result as a client without leases sends it."""

    status: int
    crt_retry_num: int
    stage: str | None
    """None leaves the stage unchanged."""
    log: str
    has_ended: bool
    """The handler has ended; before that the client returns the log as it received it."""


class _FlowsvrLogEntry(Struct, frozen=True, rename="pascal"):
    trace_id: str = ""
    err_msg: str = ""


class _FlowsvrLog(Struct, frozen=True, rename="pascal"):
    last_data: _FlowsvrLogEntry = _FlowsvrLogEntry()
    history_datas: list[_FlowsvrLogEntry] | None = None


_decode_log: Final = msgspec.json.Decoder(_FlowsvrLog).decode
_EMPTY: Final = _FlowsvrLog()


def get_code_for_unleased_result(result: ResultWithoutLease, task: Task, log: str) -> OperationCodeText:
    """Judge by its log whether a result comes from the task's current holder.

    Args:
        task: Its current state.
        log: Its log in full.

    Returns:
        `OperationCode.SAME` for a result that was accepted before, `STALE` for one whose attempt is not the latest, and
        `OK` otherwise, also for a result whose log is not in the format of flowSvr's client.
    """
    sent, known = _parse_flowsvr_log(result.log), _parse_flowsvr_log(log)
    if sent is None:
        return OperationCode.OK
    last = (known or _EMPTY).last_data.trace_id
    if not result.has_ended:
        return OperationCode.OK if sent.last_data.trace_id == last else OperationCode.STALE
    if sent.last_data.trace_id and sent.last_data.trace_id == last:
        return OperationCode.SAME
    before = sent.history_datas[-1].trace_id if sent.history_datas else ""
    if before != last or _is_of_earlier_attempt(result, task, failed=bool(sent.last_data.err_msg)):
        return OperationCode.STALE
    return OperationCode.OK


def _is_of_earlier_attempt(result: ResultWithoutLease, task: Task, *, failed: bool) -> bool:
    if result.crt_retry_num < task.crt_retry_num:
        # A handler may reset the count for its next stage, which looks the same as a late result.
        is_reset = result.crt_retry_num == 0 and result.status == TaskStatus.PENDING
        return not (is_reset and result.stage not in (None, task.stage))
    # The holder reports a failure with a count one higher than the task's, unless retries are used up.
    return (
        failed
        and result.status in (TaskStatus.PENDING, TaskStatus.SUCCESS)
        and result.crt_retry_num == task.crt_retry_num
    )


def _parse_flowsvr_log(log: str) -> _FlowsvrLog | None:
    """Parse the log of flowSvr's client; None for any other text."""
    try:
        return _decode_log(log)
    except msgspec.DecodeError:
        return None
