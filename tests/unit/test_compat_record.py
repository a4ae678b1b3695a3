"""The judge of the SDK's record sees what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.record import PENDING, SUCCESS, Entry, find_differences

TASK: dict[str, Any] = {"status": SUCCESS, "attempts": [1, 2, 3], "attempts_left_out": 0}


def record_begin(stage: str, retries: int, at: float, priority: int = 0) -> Entry:
    """An attempt that began."""
    return Entry("begun", "t", stage, retries, 0, priority, False, 0, at)


def record_result(stage: str, retries: int, status: int, at: float) -> Entry:
    """Its result, taken by the server."""
    return Entry("told", "t", stage, retries, status, 0, False, 0, at)


def run() -> list[Entry]:
    """Three stages; the second fails once."""
    return [
        *(record_begin("cut", 0, 1.0), record_result("cut", 0, PENDING, 1.1)),
        *(record_begin("mix", 0, 2.0), record_result("mix", 0, PENDING, 2.1)),
        *(record_begin("mix", 1, 3.2), record_result("mix", 1, PENDING, 3.3)),
        *(record_begin("send", 1, 4.0), record_result("send", 1, SUCCESS, 4.1)),
    ]


def differences(entries: list[Entry], task: dict[str, Any] = TASK, first: int = 1) -> list[str]:
    """What the judge says."""
    return list(find_differences(entries, {"t": task}, frozenset(), first))


def test_a_run_that_is_right_has_none() -> None:
    """Its pauses are kept and every attempt is its own."""
    assert differences(run()) == []


@pytest.mark.parametrize(
    ("entries", "task", "said"),
    [
        ([*run(), record_begin("send", 1, 5.0)], TASK, "began 2 times"),
        (run()[:-2], TASK, "it went through the stages"),
        ([*run()[6:], *run()[:6]], TASK, "it went through the stages"),
        ([*run(), record_result("send", 1, SUCCESS, 5.0)], TASK, "its end was taken twice"),
        ([*run()[:4], record_begin("mix", 1, 2.5), *run()[5:]], TASK, "its retry 1 began 0.400 s after"),
        (run(), TASK | {"status": 4}, "it has status 4"),
        (run(), TASK | {"attempts": []}, "the server gave it out 1 times"),
        ([*run()[:2], *[each._replace(priority=9) for each in run()[2:]]], TASK, "those of the highest priority"),
        ([*run(), record_begin("cut", 0, 9.0)._replace(task_id="u")], TASK, "u was held and is not there"),
    ],
)
def test_what_is_wrong_is_said(entries: list[Entry], task: dict[str, Any], said: str) -> None:
    """A sentence for each."""
    assert any(said in each for each in differences(entries, task)), differences(entries, task)
