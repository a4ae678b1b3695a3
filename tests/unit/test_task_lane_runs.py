"""When runs continue as new, although their engine is only imitated here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from domain.tasks.activity_models import LaneInput
from domain.tasks.messages import TaskTypeRules
from workflows import run_length
from workflows.run_length import RUN_EVENTS_MAX, is_run_long
from workflows.tasks import lane as lane_module
from workflows.tasks.lane import RUN_BATCHES_LIMIT, RUN_BYTES_LIMIT, RUN_EVENTS_LIMIT, TaskLane


@pytest.mark.parametrize(
    ("size", "events", "batches", "has_checkpoint", "continues"),
    [
        (0, 0, 0, False, True),
        (0, 0, 0, True, False),
        (RUN_BYTES_LIMIT - 1, RUN_EVENTS_LIMIT - 1, RUN_BATCHES_LIMIT - 1, True, False),
        (RUN_BYTES_LIMIT, 0, 0, True, True),
        (0, RUN_EVENTS_LIMIT, 0, True, True),
        (0, 0, RUN_BATCHES_LIMIT, True, True),
    ],
)
def test_a_lane_does_not_wait_for_its_archive_until_its_history_is_full(
    monkeypatch: pytest.MonkeyPatch, size: int, events: int, batches: int, has_checkpoint: bool, continues: bool
) -> None:
    """The engine ended a busy lane whose archive was away for minutes, and all its tasks were lost."""
    info = SimpleNamespace(
        is_continue_as_new_suggested=lambda: True,
        get_current_history_size=lambda: size,
        get_current_history_length=lambda: events,
    )
    for module in (lane_module, run_length):
        monkeypatch.setattr(module, "workflow", SimpleNamespace(info=lambda: info, time=lambda: 1.0))
    lane: Any = TaskLane(LaneInput("prj_1/video", 1, TaskTypeRules()))
    lane._batches = batches
    lane._checkpoint = object() if has_checkpoint else None

    assert lane._should_continue_as_new() is continues


@pytest.mark.parametrize(
    ("suggested", "events", "long"),
    [(False, RUN_EVENTS_MAX - 1, False), (False, RUN_EVENTS_MAX, True), (True, 3, True)],
)
def test_a_run_continues_as_new_while_a_worker_can_still_replay_it_in_time(
    monkeypatch: pytest.MonkeyPatch, suggested: bool, events: int, long: bool
) -> None:
    """At 4,000 events, two busy workers took a lane over from each other and none finished, for more than a minute."""
    info = SimpleNamespace(is_continue_as_new_suggested=lambda: suggested, get_current_history_length=lambda: events)
    monkeypatch.setattr(run_length, "workflow", SimpleNamespace(info=lambda: info))

    assert is_run_long() is long


def test_a_lane_that_waits_for_its_checkpoint_stays_near_the_length_of_a_run() -> None:
    """An outage of the database lets it wait: with 4,000 events two busy workers in turn replayed it in vain."""
    assert RUN_EVENTS_MAX < RUN_EVENTS_LIMIT <= 1.5 * RUN_EVENTS_MAX
