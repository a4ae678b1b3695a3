"""Workflows are started from outside in one place, so that no start forgets what each must say."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
LAYERS: Final = ("api", "workflows", "activities", "services", "stores", "clients", "infra", "cli")
STARTING: Final = {"start_workflow", "execute_workflow", "WithStartWorkflowOperation"}
ALLOWED: Final = ("super().", "starts.")
"""An interceptor passes on what another module starts; all others call `infra/starts.py`."""


def starts(path: Path) -> list[str]:
    """The calls of a module that start a workflow from outside."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call.func)
        for call in calls
        if ast.unparse(call.func).partition("[")[0].rpartition(".")[2] in STARTING
        and not ast.unparse(call.func).startswith(ALLOWED)
    ]


def test_starts_are_found() -> None:
    """Or the test below would check nothing."""
    assert len(starts(ROOT / "infra" / "starts.py")) == 2


@pytest.mark.parametrize("layer", LAYERS)
def test_no_other_module_starts_workflows(layer: str) -> None:
    """A start made elsewhere could leave out an id policy, and a second run would begin beside the first."""
    modules = [path for path in (ROOT / layer).rglob("*.py") if path != ROOT / "infra" / "starts.py"]

    assert modules
    assert {str(path.relative_to(ROOT)): found for path in modules if (found := starts(path))} == {}
