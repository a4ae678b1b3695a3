"""Results without a lease, as flowSvr's own worker sends them: the holder's, said twice, or too late."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.tasks.attempts import ResultWithoutLease, get_code_for_unleased_result
from domain.tasks.messages import OperationCode, Task
from tests.support.original_worker import ZEROS, Attempt

Json = dict[str, Any]


def make_held_task(log: str = "", retries: int = 0) -> Attempt:
    """An attempt at a task that was held with this log, after this number of failures."""
    held = {"task_stage": "sendmsg", "schedule_log": log, "crt_retry_num": retries, "max_retry_num": 3}
    return Attempt.of({**ZEROS, **held})


def verdict(said: Json, log: str = "", retries: int = 0) -> str:
    """What is made of a result while the task has this log and count."""
    task = Task("0" * 32, "", 0, 2, "sendmsg", retries, "", log, 0, 0, 0, 0, 7)
    result = ResultWithoutLease(
        status=said["status"],
        crt_retry_num=said["crt_retry_num"],
        stage=said["task_stage"],
        log=said["schedule_log"],
        has_ended=bool(said.get("order_time")),
    )
    return get_code_for_unleased_result(result, task, log)


def log_of(said: Json) -> str:
    """The log that a result leaves behind."""
    return str(said["schedule_log"])


BEFORE = log_of(make_held_task().goes_on("sendmsg"))


@pytest.mark.parametrize("log", ["", BEFORE, "[]", "no JSON", '{"other": 1}'])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_holder_is_believed(log: str, retries: int) -> None:
    """Whatever it says, and whatever the log was."""
    attempt = make_held_task(log, retries)
    for said in (
        attempt.succeeds(),
        attempt.goes_on("record"),
        attempt.goes_on("record", crt_retry_num=0),
        attempt.goes_on("sendmsg"),
        attempt.fails(),
        attempt.succeeds(status=4),
        attempt.fails(status=4, crt_retry_num=retries),
        attempt.fails(status=3),
    ):
        assert verdict(said, log, retries) == OperationCode.OK, said


@pytest.mark.parametrize("log", ["", BEFORE])
def test_an_attempt_that_came_to_no_end_is_believed(log: str) -> None:
    """Its log is the one that it was given."""
    assert (
        verdict(make_held_task(log).is_not_loaded(), log)
        == verdict(make_held_task(log).panics(), log)
        == OperationCode.OK
    )


def test_a_result_said_twice_is_known() -> None:
    """It says the attempt that the log ends with already."""
    for said in (make_held_task().goes_on("record"), make_held_task().fails(), make_held_task(BEFORE).succeeds()):
        assert verdict(said, log_of(said), said["crt_retry_num"]) == OperationCode.SAME


def test_a_word_after_another_holders_is_late() -> None:
    """The log goes on from an attempt that is not the last any more."""
    since = log_of(make_held_task().goes_on("sendmsg"))
    attempt = make_held_task()
    for said in (attempt.succeeds(), attempt.goes_on("record"), attempt.fails()):
        assert verdict(said, since) == OperationCode.STALE
    assert verdict(make_held_task(BEFORE).is_not_loaded(), since) == OperationCode.STALE


@pytest.mark.parametrize("log", ["", BEFORE])
def test_a_word_after_a_timeout_is_late(log: str) -> None:
    """The task has failed once more than the attempt knew, though the log does not show it."""
    attempt = make_held_task(log, 1)
    for said in (
        attempt.succeeds(),
        attempt.fails(),
        attempt.fails(status=3),
        attempt.goes_on("sendmsg"),
        attempt.goes_on("record"),
        attempt.succeeds(status=4),
    ):
        assert verdict(said, log, retries=2) == OperationCode.STALE, said


def test_a_next_stage_that_counts_anew_is_not_told_from_a_late_one() -> None:
    """It is believed: a handler that does so would never come to its next stage otherwise."""
    assert verdict(make_held_task().goes_on("record"), retries=1) == OperationCode.OK
    assert verdict(make_held_task().goes_on("sendmsg"), retries=1) == OperationCode.STALE


@pytest.mark.parametrize("log", ["", "done in 3 ms", "[]", json.dumps({"LastData": 5})])
def test_any_other_log_tells_nothing(log: str) -> None:
    """Without the log of flowSvr's client a result without a lease counts as the holder's."""
    said = make_held_task(BEFORE).succeeds(schedule_log=log)
    assert verdict(said, BEFORE, retries=2) == OperationCode.OK
