"""New code must still lead running workflows: recorded histories replay, and no command changes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import worker
from infra import temporal
from tests.replay import fingerprints

HISTORIES = sorted((Path(__file__).parent / "histories").rglob("*.json"))

ADVICE = """
The commands of {name} have changed. Workflows that run now were started with the old ones and will break, unless:
  1. the change is guarded: `if workflow.patched("what-changed"): new way, else: old way`; then
  2. `python -m tests.replay.record` records a history of the new way beside the old ones, which stay; and
  3. `python -m tests.replay.fingerprints` writes the new fingerprint.
If the recorded histories below still replay and nothing but names changed, step 3 alone is right.
"""


@pytest.mark.parametrize("name", sorted(fingerprints.read().keys() | fingerprints.read_committed().keys()))
def test_commands_are_the_committed_ones(name: str) -> None:
    """A change of a workflow's commands is a decision, not an accident."""
    assert fingerprints.read().get(name) == fingerprints.read_committed().get(name), ADVICE.format(name=name)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_recorded_histories_replay(path: Path) -> None:
    """Today's code takes the very steps that a recorded run took, and asks nothing but history."""
    history = WorkflowHistory.from_json(path.stem, path.read_text())

    plugin = temporal.build_plugin(sandboxed=True)
    await Replayer(workflows=worker.list_workflows(), plugins=[plugin]).replay_workflow(history)


def test_every_workflow_has_a_history() -> None:
    """A workflow without a recorded history is guarded by nothing."""
    assert {path.parent.name for path in HISTORIES} == fingerprints.workflows()
