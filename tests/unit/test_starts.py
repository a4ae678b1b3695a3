"""Workflows are started from outside in one place, so that no start forgets what each must say."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from temporalio.client import Client

from domain.downloads.models import DownloadSpec, DownloadStatus
from workflows.downloads.handle import start_download

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


async def test_all_steps_of_a_download_wait_behind_those_of_its_project() -> None:
    """Its activities inherit the key: fifty probes of slow sources must not keep other projects' from their sources."""
    started: list[dict[str, Any]] = []

    async def start_workflow(*_: object, **options: Any) -> None:
        started.append(options)

    engine = cast("Client", SimpleNamespace(start_workflow=start_workflow))
    spec = DownloadSpec(task_id="dl_1", project_id="prj_1", file_name="x.csv")
    await start_download(engine, spec, DownloadStatus(), timedelta(seconds=10))

    assert started[0]["priority"].fairness_key == "prj_1"
