"""The checker of tasks: it passes what is right, and finds each planted loss, double hold, double end and miscount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support import task_checker
from tests.support.task_checker import CountSample, GrantedLease, ReportedResult, TaskNotes

LEASE_SECONDS = 10.0

Plant = Callable[[TaskNotes], None]


def right() -> TaskNotes:
    """Ten tasks: each held and ended, the fifth after a lease that ran out, the sixth after a failure."""
    notes = TaskNotes()
    for number in range(10):
        task_id = f"t{number}"
        notes.created[f"order-{number}"] = task_id
        notes.found.append((task_id, 3))
        _hold(notes, task_id, 1, 100.0 + number)
        match number:
            case 5:
                _hold(notes, task_id, 2, 100.0 + number + LEASE_SECONDS)
                _say(notes, task_id, 2, 3, 120.0)
            case 6:
                _say(notes, task_id, 1, 1, 107.0)
                _hold(notes, task_id, 2, 108.0)
                _say(notes, task_id, 2, 3, 109.0)
            case _:
                # The answer was lost, so it was said twice.
                _say(notes, task_id, 1, 3, 100.5 + number, is_taken=False)
                _say(notes, task_id, 1, 3, 101.0 + number)
    notes.counts = [CountSample(0, 0, 0, 3), CountSample(5, 2, 4, 6), CountSample(10, 10, 10, 10)]
    notes.counted = {"task_count": 10, "pending": 0, "running": 0, "success": 10, "failed": 0}
    return notes


def _hold(notes: TaskNotes, task_id: str, lease: int, at: float) -> None:
    notes.holdings.append(GrantedLease(task_id, lease, at, at + LEASE_SECONDS))


def _say(notes: TaskNotes, task_id: str, lease: int, status: int, at: float, *, is_taken: bool = True) -> None:
    notes.sayings.append(ReportedResult(task_id, lease, status, at, is_taken))


def _lose(notes: TaskNotes) -> None:
    del notes.found[3]
    notes.counted = {**notes.counted, "task_count": 9, "success": 9}


def _leave_pending(notes: TaskNotes) -> None:
    notes.found[3] = "t3", 1
    notes.counted = {**notes.counted, "pending": 1, "success": 9}


def _create_twice(notes: TaskNotes) -> None:
    notes.found.append(("t10", 3))
    notes.counted = {**notes.counted, "task_count": 11, "success": 11}


def _list_twice(notes: TaskNotes) -> None:
    notes.found.append(("t3", 3))


def _answer_another(notes: TaskNotes) -> None:
    notes.created["order-4"] = "t3"


def _hold_within_lease(notes: TaskNotes) -> None:
    _hold(notes, "t5", 3, 117.0)


def _hold_under_one_lease(notes: TaskNotes) -> None:
    notes.holdings.append(notes.holdings[0])


def _hold_before_it_was_given_up(notes: TaskNotes) -> None:
    notes.holdings[8] = replace(notes.holdings[8], received_at=106.5)


def _end_twice(notes: TaskNotes) -> None:
    _hold(notes, "t2", 2, 130.0)
    _say(notes, "t2", 2, 3, 131.0)


def _end_otherwise(notes: TaskNotes) -> None:
    notes.found[2] = "t2", 4
    notes.counted = {**notes.counted, "success": 9, "failed": 1}


def _miscount(notes: TaskNotes) -> None:
    notes.counted = {**notes.counted, "success": 9}


def _count_too_few(notes: TaskNotes) -> None:
    notes.counts[1] = CountSample(3, 2, 4, 6)


def _count_too_many(notes: TaskNotes) -> None:
    notes.counts[1] = CountSample(7, 2, 4, 6)


def _forget_ended(notes: TaskNotes) -> None:
    notes.counts.append(CountSample(10, 9, 10, 10))


def test_what_is_right_passes() -> None:
    """Leases that ran out, failures and answers that got lost are nothing wrong."""
    assert task_checker.list_violations(right()) == []


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (_lose, "order-3 was answered as t3 and is not found"),
        (_leave_pending, "t3 never ended"),
        (_create_twice, "1 tasks more are listed"),
        (_list_twice, "t3 is listed 2 times"),
        (_answer_another, "two names were answered with the same task"),
        (_hold_within_lease, "t5 was given out under lease 3 3.000 s before lease 2 ended"),
        (_hold_under_one_lease, "t0 was given out twice under lease 1"),
        (_hold_before_it_was_given_up, "t6 was given out under lease 2 0.500 s before lease 1 ended"),
        (_end_twice, "t2 was ended under 2 leases"),
        (_end_otherwise, "t2 was ended as [3] and stands at 4"),
        (_miscount, "the counts at the end are"),
        (_count_too_few, "3 tasks were counted between 4 and 6 creates"),
        (_count_too_many, "7 tasks were counted between 4 and 6 creates"),
        (_forget_ended, "10 tasks had ended, and then 9"),
    ],
)
def test_what_is_planted_is_found(plant: Plant, sentence: str) -> None:
    """Each fault by its own sentence."""
    notes = right()
    plant(notes)
    assert any(each.startswith(sentence) for each in task_checker.list_violations(notes)), task_checker.list_violations(
        notes
    )
