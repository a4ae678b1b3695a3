"""What a lane promises, rule by rule, and what the original of flowSvr gets wrong about tasks."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from domain.tasks.lane import Lane
from domain.tasks.messages import (
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    OperationCode,
    SetOperation,
    TaskFlags,
    TaskLookup,
    TaskSearch,
    TaskStatus,
    TaskTypeRules,
)
from domain.tasks.scheduling import SECOND
from tests.support.lane_driver import START, LaneDriver


def test_a_task_goes_ahead_by_its_priority() -> None:
    """Bug a: flowSvr copies neither priority nor order_time, so all tasks have 0."""
    asked = LaneDriver()
    plain = asked.create()
    asked.wait(30)
    urgent, late = asked.create(priority=60), asked.create(priority=10)

    assert [task.key for task in asked.hold()] == [urgent, plain, late]
    assert asked.read(urgent).order_time == START - 30 * SECOND


def test_those_of_one_moment_go_in_the_order_of_coming() -> None:
    """Nothing else decides, also in one group."""
    asked = LaneDriver()
    keys = [uuid.uuid4().hex for _ in range(20)]
    asked.ask(creates=[CreateOperation(key, "user", "") for key in keys])

    assert [task.key for task in asked.hold()] == keys


def test_nobody_gets_a_task_that_somebody_has() -> None:
    """Bug c: the original gives it to both unless both take its lock."""
    asked = LaneDriver()
    keys = {asked.create() for _ in range(10)}

    holds = asked.ask(holds=[HoldOperation(4), HoldOperation(4), HoldOperation(4)]).holds

    assert [len(tasks) for tasks in holds] == [4, 4, 2]
    assert {task.key for tasks in holds for task in tasks} == keys


@pytest.mark.parametrize(("seconds", "lasts"), [(0, 30), (5, 5)])
def test_a_lease_lasts_as_long_as_the_type_or_the_hold_says(seconds: int, lasts: int) -> None:
    """Bug e: the original turns its default around."""
    asked = LaneDriver(max_processing_time=30)
    key = asked.create()
    asked.hold(seconds=seconds)
    asked.wait(lasts - 0.001)

    assert asked.read(key).status == TaskStatus.RUNNING
    asked.wait(0.001)
    assert asked.read(key).status == TaskStatus.PENDING


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4])
def test_who_lost_a_task_changes_nothing_about_it(status: int) -> None:
    """Bug f: flowSvr lets a stale worker overwrite, and answers with success."""
    asked = LaneDriver(max_retry_interval=0)
    asked.create()
    first = msgspec.structs.replace(asked.hold_one())
    asked.wait(30)
    assert asked.set(first, status) == OperationCode.STALE
    late = asked.set(first, status, log="mine")
    second = asked.hold_one()
    later = asked.set(first, status, log="mine")

    assert (late, later) == (OperationCode.STALE, OperationCode.STALE)
    assert (second.log, second.status) == ("", TaskStatus.RUNNING)
    assert asked.ask(heartbeats=[HeartbeatOperation(first.key, first.lease)]).heartbeats == OperationCode.STALE


def test_a_zero_and_an_empty_text_are_set() -> None:
    """Bug f: the original skips zero values, so that no retries can be reset."""
    asked = LaneDriver(max_retry_interval=0)
    asked.create(stage="first")
    asked.set(asked.hold_one(), 1, failed=True)
    held = asked.hold_one()
    assert held.crt_retry_num == 1

    assert asked.set(held, status=1, crt_retry_num=0, stage="", content="", log="") == OperationCode.OK
    again = asked.hold_one()
    assert (again.crt_retry_num, again.stage, again.content, again.log) == (0, "", "", "")


@pytest.mark.parametrize("status", [TaskStatus.SUCCESS, TaskStatus.FAILED])
def test_what_has_ended_stays_so(status: TaskStatus) -> None:
    """A set that is repeated because its response got lost succeeds again."""
    asked = LaneDriver()
    asked.create()
    held = asked.hold_one()
    asked.set(held, status, log="done")
    other = TaskStatus.FAILED if status is TaskStatus.SUCCESS else TaskStatus.SUCCESS

    assert asked.set(held, status, log="done") == OperationCode.SAME
    assert asked.set(held, status) == OperationCode.SAME
    assert asked.set(held, status, log="else") == OperationCode.FINAL
    assert asked.set(held, other) == OperationCode.FINAL
    assert asked.set(held, 1) == OperationCode.FINAL
    assert asked.read(held.key).log == "done"


def test_a_lane_that_is_carried_on_keeps_its_order() -> None:
    """Also among those of the same time."""
    asked = LaneDriver()
    priorities = [7, 3, 3, 9, 0, 7, 1, 9, 3, 0, 5, 5, 9, 1]
    keys = [asked.create(priority=priority) for priority in priorities]
    asked.lane = Lane(asked.lane.state.rules, asked.lane.build_snapshot())

    expected = sorted(zip(priorities, keys, strict=True), key=lambda pair: -pair[0])
    assert [task.key for task in asked.hold()] == [key for _, key in expected]


def test_a_worker_that_knows_no_leases_sets_what_is_running() -> None:
    """As flowSvr's workers do; a task without a holder cannot be set."""
    asked = LaneDriver()
    asked.create()
    held = asked.hold_one()

    assert asked.set(held, 1, lease=None) == OperationCode.OK
    assert asked.set(held, 3, lease=None) == OperationCode.STALE


def test_a_next_stage_waits_at_the_tail_of_the_queue() -> None:
    """Ahead by its priority, as at its creation: later stages do not starve those that came meanwhile."""
    asked = LaneDriver()
    staged = asked.create(priority=5)
    held = asked.hold_one()
    asked.wait(10)
    others = [asked.create(), asked.create(priority=20)]
    asked.wait(1)
    asked.set(held, 1, stage="second")

    assert asked.read(staged).order_time == asked.now - 5 * SECOND
    assert [task.key for task in asked.hold()] == [others[1], staged, others[0]]


def test_a_known_key_is_the_same_task() -> None:
    """Bug i: the original creates it a second time, or answers with an error; and takes the status it is given."""
    asked = LaneDriver()
    key = asked.create("{}", priority=3)
    again = CreateOperation(key, "user", "{}", 3)

    assert asked.ask(creates=[again, again]).creates == "11"
    for other in ({"content": "[]"}, {"priority": 4}, {"user_id": "else"}, {"flags": int(TaskFlags.CONTENT)}):
        assert asked.ask(creates=[msgspec.structs.replace(again, **other)]).creates == OperationCode.CONFLICT
    assert asked.read(key).status == TaskStatus.PENDING
    asked.set(asked.hold_one(), 3, content="[]")
    assert asked.ask(creates=[again]).creates == OperationCode.SAME


def test_a_read_sees_what_was_done_last() -> None:
    """Bug j: the original answers from a cache that neither holds nor time-outs renew."""
    asked = LaneDriver(max_processing_time=1)
    key = asked.create()

    assert asked.read(key).status == TaskStatus.PENDING
    asked.hold()
    assert asked.read(key).status == TaskStatus.RUNNING
    asked.wait(1)
    assert asked.read(key).status == TaskStatus.PENDING


def test_a_pause_gives_out_nothing_and_takes_everything() -> None:
    """Creates, sets and time-outs go on."""
    asked = LaneDriver(max_processing_time=1)
    asked.create()
    asked.hold()
    asked.ask(rules=TaskTypeRules(version=1, paused=True))
    key = asked.create()
    asked.wait(5)

    assert asked.hold() == []
    assert asked.read(key).status == TaskStatus.PENDING
    assert asked.lane.state.build_head().pending == 2
    asked.ask(rules=TaskTypeRules(version=2))
    asked.wait(1)
    assert len(asked.hold()) == 2


def test_old_rules_do_not_replace_newer_ones() -> None:
    """Processes learn of a change at different times."""
    asked = LaneDriver()

    assert asked.ask(rules=TaskTypeRules(version=5, schedule_limit=7)).version == 5
    assert asked.ask(rules=TaskTypeRules(version=4)).version == 5
    assert asked.lane.state.rules.schedule_limit == 7


@pytest.mark.parametrize(("asked_for", "got"), [(0, 3), (2, 2), (9, 3)])
def test_a_hold_gets_no_more_than_the_type_allows(asked_for: int, got: int) -> None:
    """A hold may ask for less."""
    asked = LaneDriver(schedule_limit=3)
    for _ in range(5):
        asked.create()

    assert len(asked.hold(asked_for)) == got


def test_a_full_lane_takes_no_more_and_serves_on() -> None:
    """Also when tasks have gone: new ones belong into the next lane."""
    asked = LaneDriver(lane_max_tasks=3)
    keys = [uuid.uuid4().hex for _ in range(5)]
    reply = asked.ask(creates=[CreateOperation(key, "user", "") for key in keys])
    held = asked.hold()
    asked.set(held[0], 3)
    asked.lane.state.remove_archived([held[0].key])

    assert (reply.creates, reply.head.full) == ("00033", True)
    assert (
        asked.ask(creates=[CreateOperation(keys[4], "user", ""), CreateOperation(keys[1], "user", "")]).creates == "31"
    )
    assert not asked.lane.is_closed_to_creates_and_empty
    for task in held[1:]:
        asked.set(task, 4)
    asked.lane.state.remove_archived(keys)
    assert asked.lane.is_closed_to_creates_and_empty


def test_a_cancelled_task_is_told_from_a_failed_one() -> None:
    """Pending or running; its holder learns it, and one that failed is not cancelled after that."""
    asked = LaneDriver()
    running = asked.create(priority=9)
    held = asked.hold_one()
    pending = asked.create()

    assert asked.ask(cancels=[pending, running, "0" * 32]).cancels == OperationCode.OK * 2 + OperationCode.MISSING
    assert asked.ask(cancels=[pending]).cancels == OperationCode.SAME
    assert asked.hold() == []
    assert asked.set(held, 3) == OperationCode.FINAL
    failed = asked.create()
    asked.set(asked.hold_one(), 4)
    assert asked.ask(cancels=[failed]).cancels == OperationCode.FINAL
    assert [asked.read(key).status for key in (pending, running, failed)] == [5, 5, 4]
    head = asked.lane.state.build_head()
    assert (head.cancelled, head.failed) == (2, 1)
    asked.lane.state.refuse_creates_permanently()
    assert (asked.lane.count_all_finished_tasks().cancelled, asked.lane.build_status().cancelled) == (2, 2)


def test_a_task_starts_at_its_time() -> None:
    """Not before, whatever its priority, and then in the place that it has by its priority."""
    asked = LaneDriver()
    late = asked.create(priority=60, start=START + 10 * SECOND)
    asked.wait(9)
    plain = asked.create()
    asked.wait(0.999)
    assert asked.lane.state.build_head().next_order_time == START + 9 * SECOND
    assert [task.key for task in asked.hold(1)] == [plain]
    assert asked.hold() == []
    asked.create()
    asked.wait(0.001)
    [first, _] = asked.hold()
    assert (first.key, first.order_time) == (late, START - 50 * SECOND)
    past = asked.create(priority=5, start=START)
    assert asked.read(past).order_time == asked.read(past).create_time - 5 * SECOND


def test_a_task_that_waits_for_its_start_is_carried_on() -> None:
    """With its place to come; and it may be cancelled before that."""
    asked = LaneDriver()
    late, unwanted = [asked.create(priority=60, start=START + 10 * SECOND) for _ in range(2)]
    asked.lane = Lane(asked.lane.state.rules, asked.lane.build_snapshot())
    assert asked.ask(cancels=[unwanted]).cancels == OperationCode.OK
    assert (asked.hold(), asked.lane.state.build_head().due) == ([], 0)
    asked.wait(10)
    assert [(task.key, task.order_time) for task in asked.hold()] == [(late, START - 50 * SECOND)]
    assert asked.lane.state.build_head().due == 0


def test_a_type_may_demand_leases() -> None:
    """A worker's result without one is refused, also if the API has filled one in; an operator's is not."""
    asked = LaneDriver(lease_required=True)
    key = asked.create()
    held = asked.hold_one()
    unleased = [SetOperation(key, 3, is_unleased=True), SetOperation(key, 3, held.lease, is_unleased=True)]
    assert asked.ask(sets=unleased).sets == OperationCode.NO_LEASE * 2
    assert asked.ask(sets=[SetOperation(key, 1)]).sets == OperationCode.OK
    assert asked.set(asked.hold_one(), 3) == OperationCode.OK


def test_beats_keep_a_task() -> None:
    """As long as they come."""
    asked = LaneDriver(max_processing_time=2)
    key = asked.create()
    held = asked.hold_one()
    for _ in range(10):
        asked.wait(1.5)
        assert asked.ask(heartbeats=[HeartbeatOperation(key, held.lease)]).heartbeats == OperationCode.OK
    asked.wait(1.999)

    assert asked.read(key).status == TaskStatus.RUNNING
    asked.wait(0.001)
    assert asked.read(key).status == TaskStatus.PENDING


def test_tasks_are_found_by_their_properties() -> None:
    """The newest first, as many as asked for."""
    asked = LaneDriver()
    keys = []
    for number in range(6):
        keys.append(asked.create(stage=("a", "b")[number % 2]))
        asked.wait(1)
    asked.hold(2)

    def find_indexes(**wanted: Any) -> list[int]:
        return [keys.index(task.key) for task in asked.lane.search_tasks(TaskSearch(**wanted)).tasks]

    assert find_indexes() == [5, 4, 3, 2, 1, 0]
    assert find_indexes(limit=2) == [5, 4]
    assert find_indexes(stage="b") == [5, 3, 1]
    assert find_indexes(status=2, stage="a") == [0]
    assert find_indexes(user_id="else") == []
    assert [task and task.key for task in asked.lane.find_tasks(TaskLookup([keys[3], "0" * 32])).tasks] == [
        keys[3],
        None,
    ]


def test_a_lane_of_a_type_that_is_removed_takes_no_task() -> None:
    """What it has goes on; rules that are newer open it again."""
    asked = LaneDriver()
    key = asked.create()
    asked.ask(rules=TaskTypeRules(version=3, removed=True))
    again, new = CreateOperation(key, "user", "{}"), CreateOperation(uuid.uuid4().hex, "user", "{}")

    refused = asked.ask(creates=[again, new])
    assert refused.creates == OperationCode.SAME + OperationCode.REMOVED
    assert not refused.head.full
    assert asked.set(asked.hold_one(), TaskStatus.SUCCESS) == OperationCode.OK
    assert asked.ask(rules=TaskTypeRules(version=4), creates=[new]).creates == OperationCode.OK
