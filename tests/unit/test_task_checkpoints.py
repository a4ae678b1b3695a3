"""When a lane has something written down: within a second, in batches, with a group that comes by rather than alone."""

from __future__ import annotations

import pytest

from domain.tasks.activity_models import LaneSnapshot
from domain.tasks.lane import CHECKPOINT_PAUSE_MS, PACE, CheckpointIntervals, CheckpointSchedule
from domain.tasks.messages import CreateOperation, HoldOperation, LaneHead, SetOperation, TaskStatus, TaskTypeRules
from domain.tasks.state import LaneState

NOW = 1_000_000


@pytest.fixture
def state() -> LaneState:
    """A lane with three tasks that have ended."""
    state = LaneState(
        TaskTypeRules(lane_max_tasks=10), LaneSnapshot(head=LaneHead(), now=NOW, last_lease=0, tasks=[], replies=[])
    )
    for number in range(4):
        state.create_task(CreateOperation(f"{number:032x}", "", "text"))
    for task in state.hold_tasks(HoldOperation(3), 1_000_000):
        state.apply_set_operation(SetOperation(task.key, TaskStatus.SUCCESS, task.lease))
    return state


@pytest.mark.parametrize(
    ("pace", "next_at", "due_at"),
    [
        (CheckpointIntervals(batch_tasks=4, full_pause_ms=300, early_ms=0), CHECKPOINT_PAUSE_MS, CHECKPOINT_PAUSE_MS),
        (CheckpointIntervals(batch_tasks=3, full_pause_ms=300, early_ms=0), 300, 300),
        (CheckpointIntervals(batch_tasks=3, full_pause_ms=300, early_ms=50), 300, 250),
        (PACE, CHECKPOINT_PAUSE_MS, CHECKPOINT_PAUSE_MS - PACE.early_ms),
    ],
)
def test_a_step_is_taken_when_its_time_has_come(
    state: LaneState, pace: CheckpointIntervals, next_at: int, due_at: int
) -> None:
    """Sooner where a batch is full, and a little before its time if the lane is asked for something anyway."""
    schedule = CheckpointSchedule(pace)
    assert schedule.is_due(state, NOW), "at first nobody knows of the lane"
    schedule.begin_and_collect_checkpoint(state, "t", 1, NOW)

    assert schedule.get_next_checkpoint_time(state) == NOW + next_at
    assert not schedule.is_due(state, NOW + due_at - 1)
    assert schedule.is_due(state, NOW + due_at)


def test_no_step_is_taken_for_nothing(state: LaneState) -> None:
    """A head that has not changed is not saved again."""
    schedule = CheckpointSchedule(PACE)
    checkpoint = schedule.begin_and_collect_checkpoint(state, "t", 1, NOW)
    state.remove_archived([task.key for task in checkpoint.ended])

    assert (len(checkpoint.ended), checkpoint.is_first) == (3, True)
    assert schedule.get_next_checkpoint_time(state) is None
    assert not schedule.is_due(state, NOW + 10 * CHECKPOINT_PAUSE_MS)


def test_no_batch_is_larger_than_the_pace_allows(state: LaneState) -> None:
    """The rest comes with the next."""
    checkpoint = CheckpointSchedule(
        CheckpointIntervals(batch_tasks=2, full_pause_ms=0, early_ms=0)
    ).begin_and_collect_checkpoint(state, "t", 1, NOW)

    assert [task.key for task in checkpoint.ended] == [f"{0:032x}", f"{1:032x}"]
