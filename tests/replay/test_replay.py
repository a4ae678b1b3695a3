"""New code must still lead running workflows: recorded histories replay, and no command changes unnoticed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import worker
from activities.addresses.activities import LogicalDeleteActivities
from domain.addresses import names
from domain.addresses.activity_models import AddressIdsByPurgeOutcome, PurgeAddressesInput
from infra import temporal
from tests.replay import fingerprints
from workflows.activity_calls import ADDRESS_BATCH
from workflows.addresses.maintenance import SelectedAddressesPurge

HISTORIES = sorted((Path(__file__).parent / "histories").rglob("*.json"))
"""Of every version, each in a folder of its own."""

ADVICE = """
The commands of {name} have changed. Workflows that run now were started with the old ones and will break, unless:
  1. the change is guarded: `if workflow.patched("0.2.0 what it changes"): new way, else: old way`,
     with the version that brings it; then
  2. `python -m tests.replay.record` records histories of the new way beside those of released versions, which stay; and
  3. `python -m tests.replay.fingerprints` writes the new fingerprint.
If the recorded histories below still replay and nothing but names changed, step 3 alone is right.
"""
PARTS = {"RangeFetchers": "DownloadWorkflow"}
"""Classes that a workflow leaves work to."""
CONTINUED = "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW"


@pytest.mark.parametrize("name", sorted(fingerprints.read().keys() | fingerprints.read_committed().keys()))
def test_commands_are_the_committed_ones(name: str) -> None:
    """A change of a workflow's commands is a decision, not an accident."""
    assert fingerprints.read().get(name) == fingerprints.read_committed().get(name), ADVICE.format(name=name)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_recorded_histories_replay(path: Path) -> None:
    """Today's code takes the very steps that a recorded run took, and asks nothing but history."""
    await _replay(path, [find_workflow(path)])


def find_workflow(path: Path) -> type:
    """Find the workflow of a history among those of the workers; a replay imports each one that it is given anew."""
    [found] = [each for each in worker.list_workflows() if each.__name__ == path.parent.name]
    return found


@workflow.defn(name=names.PURGE_WORKFLOW, sandboxed=False)
class StepAdded(SelectedAddressesPurge):
    """The purge of addresses with one more step before the others."""

    @workflow.run
    async def run(self, params: PurgeAddressesInput) -> AddressIdsByPurgeOutcome:
        """Wait, and do as before."""
        await workflow.sleep(1)
        return await SelectedAddressesPurge.run(self, params)


@workflow.defn(name=names.PURGE_WORKFLOW, sandboxed=False)
class StepMoved(SelectedAddressesPurge):
    """The purge of addresses whose last step comes first."""

    @workflow.run
    async def run(self, params: PurgeAddressesInput) -> AddressIdsByPurgeOutcome:
        """Show the state before there is one."""
        workflow.upsert_search_attributes([temporal.STATE.value_set(names.SUCCEEDED)])
        return await workflow.execute_activity_method(
            LogicalDeleteActivities.purge_addresses, params, **ADDRESS_BATCH, summary=f"purge 1 for {params.who}"
        )


@pytest.mark.parametrize("changed", [StepAdded, StepMoved])
async def test_a_step_that_is_added_or_moved_is_found(changed: type[SelectedAddressesPurge]) -> None:
    """The history of a run with the steps before does not replay; with those of today it does."""
    # A run that took both steps; one that was cancelled did not.
    path = next(path for path in HISTORIES if path.match(f"{SelectedAddressesPurge.__name__}/not-listed.json"))

    await _replay(path, [SelectedAddressesPurge], sandboxed=False)
    with pytest.raises(workflow.NondeterminismError):
        await _replay(path, [changed], sandboxed=False)


def test_every_workflow_has_a_history() -> None:
    """A workflow without a recorded history is guarded by nothing."""
    assert {path.parent.name for path in HISTORIES} == fingerprints.workflows()


def test_every_workflow_that_continues_as_new_has_such_a_history() -> None:
    """A run that begins with what another knew is easily broken by a change, and seldom seen in tests."""
    continued = {
        path.parent.name for path in HISTORIES if json.loads(path.read_text())["events"][-1]["eventType"] == CONTINUED
    }
    assert continued == {
        PARTS.get(name, name)
        for name, methods in fingerprints.read().items()
        if any(call.startswith("workflow.continue_as_new") for calls in methods.values() for call in calls)
    }


async def _replay(path: Path, workflows: Sequence[type], *, sandboxed: bool = True) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    await Replayer(workflows=workflows, plugins=[temporal.build_plugin(sandboxed=sandboxed)]).replay_workflow(history)
