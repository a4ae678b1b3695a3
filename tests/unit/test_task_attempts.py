"""What a task remembers of attempts that did not end it, and what it costs a lane."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from domain.tasks import attempts
from domain.tasks.activity_models import SNAPSHOT_MAX_BYTES, LaneSnapshot
from domain.tasks.attempts import ATTEMPTS_MAX, NonFinalAttemptOutcome
from domain.tasks.lane import Lane
from domain.tasks.messages import (
    HOLD_LIMIT_MAX,
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    LaneBatch,
    LaneBatchReply,
    SetOperation,
    Task,
    TaskTypeRules,
)
from tests.support.lane_driver import START, LaneDriver
from tests.support.lanes import new_tasks

encode = msgspec.json.encode


def list_attempt_times(asked: LaneDriver, key: str) -> list[tuple[float, float, int]]:
    """Seconds after the beginning: when each attempt was held, and when it was over."""
    rows, _ = attempts.decode_attempts(asked.read(key))
    return [((row.held_time - START) / 1_000, (row.end_time - START) / 1_000, row.outcome) for row in rows]


def test_each_attempt_that_did_not_end_the_task_is_told() -> None:
    """Failed, timed out, gone on to a next stage or put back; the one that ended it is its end."""
    asked = LaneDriver(max_processing_time=30, max_retry_interval=0, max_retry_num=2)
    key = asked.create(stage="cut")
    for said in (
        {"status": 1, "failed": True},
        None,
        {"status": 1, "stage": "mail"},
        {"status": 1},
        {"status": 1, "stage": "mail"},
        {"status": 3},
    ):
        held = msgspec.structs.replace(asked.hold_one())
        asked.wait(30 if said is None else 2)
        asked.ask() if said is None else asked.set(held, **said)

    assert list_attempt_times(asked, key) == [
        (0, 2, NonFinalAttemptOutcome.FAILED),
        (2, 32, NonFinalAttemptOutcome.TIMED_OUT),
        (32, 34, NonFinalAttemptOutcome.NEXT_STAGE),
        (34, 36, NonFinalAttemptOutcome.PUT_BACK),
        (36, 38, NonFinalAttemptOutcome.PUT_BACK),
    ]


@pytest.mark.parametrize("said", [{"status": 3}, {"status": 4}])
def test_a_task_that_is_done_at_once_remembers_nothing(said: dict[str, Any]) -> None:
    """Most are, so it must not cost anything."""
    asked = LaneDriver()
    key = asked.create()
    asked.set(asked.hold_one(), **said)

    assert asked.read(key).attempts == ()
    assert attempts.count_attempt_bytes(asked.read(key)) == 0


def test_whoever_says_something_meanwhile_has_held_it_for_no_shorter() -> None:
    """A word of the holder changes when the task was changed last, not when it was held; a beat changes neither."""
    asked = LaneDriver(max_processing_time=30)
    asked.wait(5)
    key = asked.create()
    held = asked.hold_one()
    for _ in range(3):
        asked.wait(10)
        asked.set(held, 2, log="at it")
        asked.ask(heartbeats=[HeartbeatOperation(key, held.lease)])
    asked.wait(1)
    asked.set(held, 1)

    assert list_attempt_times(asked, key) == [(5, 36, NonFinalAttemptOutcome.PUT_BACK)]


def test_the_last_attempts_are_told_and_how_many_there_were_before() -> None:
    """However many there are."""
    asked = LaneDriver()
    key = asked.create()
    for _ in range(ATTEMPTS_MAX + 15):
        held = asked.hold_one()
        asked.wait(1)
        asked.set(held, 1)

    rows, left_out = attempts.decode_attempts(asked.read(key))
    assert (len(rows), left_out) == (ATTEMPTS_MAX, 15)
    assert [(row.held_time - START) // 1_000 for row in rows] == [*range(15, 25)]


def test_who_is_given_a_task_is_not_told_of_attempts() -> None:
    """Neither at first nor when the same group comes again; a lane has its answers' bytes for tasks."""
    asked = LaneDriver(max_retry_interval=0)
    key = asked.create()
    asked.set(asked.hold_one(), 1)
    group = LaneBatch("other", 1, holds=[HoldOperation(1)])

    for _ in range(2):
        [[held]] = asked.lane.apply_batch(group, asked.now).holds
        assert (held.key, held.attempts) == (key, ())
    assert len(list_attempt_times(asked, key)) == 1


def full(content: str) -> tuple[Lane, list[str]]:
    """A lane that takes no more tasks, and their keys."""
    lane = Lane(TaskTypeRules(schedule_limit=HOLD_LIMIT_MAX, lane_max_tasks=20_000))
    created: list[str] = []
    number = 0
    while not lane.state.is_full:
        number += 1
        new = new_tasks(400, content)
        codes = lane.apply_batch(LaneBatch("creator", number, creates=new), START).creates
        created += [task.key for task, code in zip(new, codes, strict=True) if code == "0"]
    return lane, created


@pytest.mark.parametrize("content", ["", "x" * 512], ids=["short", "long"])
def test_what_a_full_lane_remembers_fits_its_message(content: str) -> None:
    """The oldest attempts of all tasks are dropped and counted; other decisions do not change."""
    lane, created = full(content)
    for round_ in range(2 * ATTEMPTS_MAX):
        now = START + 10**11 + round_
        for number in range(20):
            lane.apply_batch(
                LaneBatch("holder", 100 * round_ + number + 1, holds=[HoldOperation(HOLD_LIMIT_MAX)]), now + number
            )
        for at in range(0, len(created), 1_000):
            settings = [SetOperation(key, 1) for key in created[at : at + 1_000]]
            assert set(
                lane.apply_batch(LaneBatch("setter", 100_000 * round_ + at + 1, sets=settings), now + 20).sets
            ) == {"0"}
    batch = lane.state.list_ended(500, 300_000)
    carried = encode(lane.build_snapshot())

    assert batch == []
    assert len(carried) <= SNAPSHOT_MAX_BYTES + 2_000
    again = Lane(lane.state.rules, msgspec.json.decode(carried, type=LaneSnapshot))
    counts = {len(rows) + left_out for rows, left_out in map(attempts.decode_attempts, again.state.tasks.values())}
    assert counts == {2 * ATTEMPTS_MAX}
    assert again.state.weight == lane.state.weight
    reply = again.apply_batch(LaneBatch("reader", 1, reads=created[:1_000]), START + 10**12)
    assert len(encode(reply)) <= 1_000_000


EARLIER = msgspec.defstruct("EarlierTask", [*Task.__annotations__.items()][:14], array_like=True, gc=False)
"""A task as versions know it that keep no attempts."""


def test_versions_without_attempts_understand_a_lane_and_are_understood() -> None:
    """An API process of one version asks a lane of the other; a lane is carried on from one to the other."""
    asked = LaneDriver(max_retry_interval=0)
    key = asked.create()
    asked.set(asked.hold_one(), 1)
    told: Any = msgspec.json.Decoder(EARLIER).decode(encode(asked.read(key)))
    back = msgspec.json.decode(encode(told), type=Task)

    assert (told.key, told.lease) == (key, 1)
    assert msgspec.structs.replace(asked.read(key), attempts=()) == back
    assert attempts.decode_attempts(back) == ([], 0)
    reply = msgspec.json.decode(encode(asked.ask(reads=[key])), type=LaneBatchReply)
    assert reply.reads == [asked.read(key)]


def test_a_task_that_never_was_touched_carries_an_empty_row() -> None:
    """Three bytes."""
    asked = LaneDriver()
    asked.ask(creates=[CreateOperation("0" * 32, "", "")])

    assert encode(asked.read("0" * 32)).endswith(b",[]]")
