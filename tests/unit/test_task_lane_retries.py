"""Retries of a lane: how long a failed task waits, and when its last failure ends it."""

from __future__ import annotations

import msgspec
import pytest

from domain.tasks import scheduling
from domain.tasks.messages import (
    OperationCode,
    TaskStatus,
    TaskTypeRules,
)
from domain.tasks.scheduling import SECOND
from tests.support.lane_driver import LaneDriver


@pytest.mark.parametrize(
    ("interval", "delays"),
    [
        (10, [1, 2, 4, 8, 10, 10, 10]),
        (1, [1, 1, 1]),
        (0, [0, 0, 0]),
        (-7, [7, 7, 7]),
        (2**40, [1, 2, 4, 8]),
    ],
)
def test_delays_double_up_to_a_longest_or_are_all_the_same(interval: int, delays: list[int]) -> None:
    """Progressive when positive, uniform when negative."""
    told = [
        scheduling.compute_retry_delay_ms(TaskTypeRules(max_retry_interval=interval), retries)
        for retries in range(len(delays))
    ]

    assert told == [delay * SECOND for delay in delays]


def test_delays_stay_bounded_after_a_million_retries() -> None:
    """The doubling is clamped, or it would make a number with a million bits."""
    assert scheduling.compute_retry_delay_ms(TaskTypeRules(max_retry_interval=2**62), 1_000_000) == 2**31 * SECOND


def test_a_retry_is_not_given_out_before_its_delay() -> None:
    """Bug b: the original asks for no order_time, so that an idle queue retries at once."""
    asked = LaneDriver(max_retry_interval=-5)
    asked.create()
    asked.set(asked.hold_one(), 1, failed=True)
    asked.wait(4.999)

    assert asked.hold() == []
    asked.wait(0.001)
    assert len(asked.hold()) == 1


def test_a_task_is_tried_once_more_than_it_has_retries() -> None:
    """Bug d: the original's time-outs always count to 1, and such tasks never fail."""
    asked = LaneDriver(max_retry_num=3, max_retry_interval=10, max_processing_time=30)
    key = asked.create()
    waits = []
    for _ in range(4):
        assert len(asked.hold()) == 1
        asked.wait(30)
        task = asked.read(key)
        waits.append((task.order_time - asked.now) // SECOND)
        asked.wait(max(0, waits[-1]))

    task = asked.read(key)
    assert (task.status, task.crt_retry_num) == (TaskStatus.FAILED, 3)
    assert waits[:3] == [1, 2, 4]
    assert asked.hold() == []


@pytest.mark.parametrize("retries", [0, 1])
def test_without_retries_a_task_fails_at_once(retries: int) -> None:
    """By time-out and by what the worker says alike."""
    asked = LaneDriver(max_retry_num=0)
    key = asked.create()
    held = asked.hold_one()
    if retries:
        asked.set(held, status=1, crt_retry_num=retries)
    else:
        asked.wait(31)

    assert asked.read(key).status == TaskStatus.FAILED


def test_a_last_failure_that_is_repeated_is_the_same() -> None:
    """Its holder threw the task back, which ended it; the answer got lost, and the holder says so again."""
    asked = LaneDriver(max_retry_num=0)
    asked.create()
    held = msgspec.structs.replace(asked.hold_one())

    assert asked.set(held, 1, crt_retry_num=1, log="broken") == OperationCode.OK
    assert asked.read(held.key).status == TaskStatus.FAILED
    assert asked.set(held, 1, crt_retry_num=1, log="broken") == OperationCode.SAME
    assert asked.set(held, 1, log="broken") == OperationCode.FINAL
    assert asked.set(held, 1, crt_retry_num=1, log="else") == OperationCode.FINAL


def test_a_worker_may_count_several_retries_at_once() -> None:
    """The delay is that of the last of them."""
    asked = LaneDriver(max_retry_num=5, max_retry_interval=60)
    key = asked.create()
    asked.set(asked.hold_one(), 1, crt_retry_num=3)

    task = asked.read(key)
    assert (task.crt_retry_num, task.order_time - asked.now) == (3, 4 * SECOND)


def test_a_repeated_throwing_back_is_the_same() -> None:
    """Until another worker holds the task."""
    asked = LaneDriver()
    asked.create()
    held = msgspec.structs.replace(asked.hold_one())

    assert asked.set(held, 1, stage="next") == OperationCode.OK
    assert asked.set(held, 1, stage="next") == OperationCode.SAME
    assert asked.set(held, 3) == OperationCode.STALE
    assert len(asked.hold()) == 1
    assert asked.set(held, 1, stage="next") == OperationCode.STALE


def test_a_failure_that_is_told_again_without_a_lease_is_the_same() -> None:
    """It was counted, and the task has no holder; another count or another log is another result."""
    asked = LaneDriver(max_retry_num=3)
    asked.create()
    held = asked.hold_one()
    failed = {"lease": None, "crt_retry_num": 1, "log": "first try"}

    assert asked.set(held, 1, **failed) == OperationCode.OK
    assert asked.set(held, 1, **failed) == OperationCode.SAME
    assert asked.set(held, 1, **{**failed, "log": "another try"}) == OperationCode.STALE
    assert asked.set(held, 1, **{**failed, "crt_retry_num": 0}) == OperationCode.STALE
    assert asked.set(held, 1, lease=None) == OperationCode.STALE
    assert asked.read(held.key).crt_retry_num == 1


def test_a_delayed_retry_is_in_nobodys_way() -> None:
    """Bug k, in one lane: what is due behind it is given out."""
    asked = LaneDriver(max_retry_interval=-600)
    asked.create()
    asked.set(asked.hold_one(), 1, failed=True)
    due = asked.create()

    assert [task.key for task in asked.hold()] == [due]


def test_a_count_above_the_most_retries_ends_the_task() -> None:
    """The worker's count counts: with more than the type allows there is no other attempt; else it is only kept."""
    asked = LaneDriver(max_retry_num=3, max_retry_interval=0)
    for retries, status in ((3, TaskStatus.PENDING), (4, TaskStatus.FAILED)):
        key = asked.create()
        assert asked.set(asked.hold_one(), 1, crt_retry_num=retries) == OperationCode.OK
        assert asked.read(key).status == status
        asked.ask(cancels=[key])
    key = asked.create()
    assert asked.set(asked.hold_one(), 2, crt_retry_num=9) == OperationCode.OK
    assert (asked.read(key).status, asked.read(key).crt_retry_num) == (TaskStatus.RUNNING, 9)


def test_the_first_pause_may_be_longer() -> None:
    """They double from there, up to the longest."""
    told = [
        scheduling.compute_retry_delay_ms(TaskTypeRules(retry_interval=5, max_retry_interval=30), retries)
        for retries in range(5)
    ]
    assert told == [5_000, 10_000, 20_000, 30_000, 30_000]
