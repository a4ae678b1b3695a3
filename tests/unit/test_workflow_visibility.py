"""Every workflow can be found and asked by the `temporal` command alone: search attributes and the query `status`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio import workflow

import worker
from infra import starts, temporal

ROOT = Path(__file__).parents[2]
STARTS = {
    "WorkflowStart": "attributes",
    "ScheduleActionStartWorkflow": "typed_search_attributes",
    "workflow.start_child_workflow": "search_attributes",
    "workflow.execute_child_workflow": "search_attributes",
}
"""Calls that start a workflow, and the argument with its search attributes."""
BUILDERS = ("build_search_attributes", "build_search_attributes")
MODULES = sorted((ROOT / "workflows").rglob("*.py"))


@pytest.mark.parametrize("class_", worker.list_workflows(), ids=lambda class_: class_.__name__)
def test_every_workflow_answers_status(class_: type) -> None:
    """Without an argument."""
    definition = workflow._Definition.must_from_class(class_)
    assert "status" in definition.queries
    assert definition.queries["status"].arg_types == []


def find_starts(source: str) -> Iterator[tuple[str, str]]:
    """Yield each call that starts a workflow, with the text of its search attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in STARTS:
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            yield name, given.get(STARTS[name], "")


def test_a_start_without_attributes_is_found() -> None:
    """As the schedule of the watch over platforms once was."""
    assert list(find_starts("ScheduleActionStartWorkflow('Watch', id='watch')")) == [
        ("ScheduleActionStartWorkflow", "")
    ]


def test_every_start_carries_system_project_and_state() -> None:
    """By a function that sets all three."""
    found = [(path.name, *each) for path in MODULES for each in find_starts(path.read_text())]
    assert len(found) >= 15
    assert [each for each in found if not any(f"{name}(" in each[2] for name in BUILDERS)] == []
    for attributes in (
        starts.build_search_attributes("tasks"),
        starts.build_search_attributes("tasks", project_id="p"),
    ):
        assert {pair.key for pair in attributes.search_attributes} == set(temporal.SEARCH_ATTRIBUTES)
