"""A workflow acts in the turns that the engine has begun, and in no others."""

from __future__ import annotations

from typing import Any, cast

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

from infra.query_guard import QUERY_TOO_EARLY, WorkflowTaskOnlyInstance


class Workflow:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.did: list[list[str]] = []

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        self.did.append([str(job.WhichOneof("variant")) for job in act.jobs])
        done = WorkflowActivationCompletion(run_id=act.run_id)
        done.successful.SetInParent()
        return done


def act(*kinds: str, time: int, events: int, replaying: bool = False) -> WorkflowActivation:
    """What the SDK asks for, in a turn's time and so far into history."""
    asked = WorkflowActivation(run_id="run", history_length=events, is_replaying=replaying)
    asked.timestamp.FromNanoseconds(time)
    for kind in kinds:
        getattr(asked.jobs.add(), kind).SetInParent()
    return asked


def query(*, time: int, events: int) -> WorkflowActivation:
    """A query outside of any turn."""
    asked = act("query_workflow", time=time, events=events, replaying=True)
    asked.jobs[0].query_workflow.query_id = "legacy_query"
    return asked


@pytest.fixture
def workflow() -> Workflow:
    """Return a workflow that has done its first turn."""
    return Workflow()


def run(workflow: Workflow, *asked: WorkflowActivation) -> list[str]:
    """Ask one after the other; what was refused, in the words of the refusal."""
    turns = WorkflowTaskOnlyInstance(cast("WorkflowInstance", cast("Any", workflow)))
    done = [turns.activate(each) for each in asked]
    return [each.failed.failure.message for each in done if each.HasField("failed")]


def test_what_comes_before_its_turn_is_refused(workflow: Workflow) -> None:
    """A timer has fired, a query reads history so far, and the turn has not begun: its time is that of the last."""
    refused = run(workflow, act("do_update", time=5, events=7), act("fire_timer", time=5, events=12))
    assert refused == [QUERY_TOO_EARLY]
    assert workflow.did == [["do_update"]]


def test_turns_are_taken_as_they_come(workflow: Workflow) -> None:
    """Each has a later time; queries between them have the time of the last."""
    asked = [
        act("initialize_workflow", time=1, events=3),
        act("query_workflow", time=1, events=6),
        act("fire_timer", time=2, events=9),
        act("remove_from_cache", time=0, events=9),
    ]
    assert run(workflow, *asked) == []
    assert len(workflow.did) == 4


def test_what_follows_from_its_own_commands_is_no_other_turn(workflow: Workflow) -> None:
    """An activity that it cancels is over at once, in the same turn and no farther on in history."""
    assert run(workflow, act("fire_timer", time=5, events=7), act("resolve_activity", time=5, events=7)) == []


def test_a_coarse_clock_does_no_harm_in_what_is_replayed(workflow: Workflow) -> None:
    """Two turns of history may have the same time."""
    turns = [act("fire_timer", time=5, events=number, replaying=True) for number in (7, 12)]
    assert run(workflow, *turns) == []


def test_what_a_query_makes_of_a_turn_that_began_elsewhere_is_forgotten(workflow: Workflow) -> None:
    """A worker died in its turn: who replays for a query acts as if the turn were its own."""
    replayed = [act("initialize_workflow", time=1, events=3, replaying=True)]
    ahead = act("fire_timer", time=2, events=7)
    assert run(workflow, *replayed, ahead, query(time=2, events=7)) == [QUERY_TOO_EARLY]


def test_who_has_answered_or_gone_on_is_asked_as_ever(workflow: Workflow) -> None:
    """A workflow that was replayed for a query alone, one that is new, and one that has had its turns."""
    replayed = act("initialize_workflow", time=1, events=3, replaying=True)
    turns = [act("fire_timer", time=number, events=4 * number) for number in (2, 3)]
    for asked in (
        [replayed, query(time=1, events=3), turns[0], query(time=2, events=8)],
        [act("initialize_workflow", time=1, events=3), query(time=1, events=3)],
        [replayed, *turns, query(time=3, events=12)],
    ):
        assert run(workflow, *asked) == []


def test_a_query_within_a_turn_is_answered(workflow: Workflow) -> None:
    """It comes with the turn, so the turn is this worker's."""
    replayed = act("initialize_workflow", time=1, events=3, replaying=True)
    turn = act("fire_timer", time=2, events=7)
    assert run(workflow, replayed, turn, act("query_workflow", time=2, events=7)) == []
