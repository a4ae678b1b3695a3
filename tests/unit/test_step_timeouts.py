"""A step whose worker or engine dies is begun again soon: it beats, or it may not take long."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
SOON: Final = timedelta(minutes=1)
"""So long it may stay unknown that nobody does a step."""


def steps() -> Iterator[tuple[str, ast.Call]]:
    """All places where a plan has a step done, and the module of each."""
    for path in sorted((ROOT / "workflows").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_step(node.func.attr):
                yield module, node


def _is_step(name: str) -> bool:
    return name.startswith(("execute_", "start_")) and "activity" in name


def test_all_steps_are_found() -> None:
    """Or the test below would check nothing."""
    assert len(list(steps())) > 25


@pytest.mark.parametrize(
    ("module", "step"), [pytest.param(*each, id=f"{each[0]}:{each[1].lineno}") for each in steps()]
)
def test_a_step_beats_or_is_short(module: str, step: ast.Call) -> None:
    """An engine that dies after it has given a step to a worker, and before that has it, knows nothing else."""
    options = {each.arg: each.value for each in step.keywords}
    if "heartbeat_timeout" in options:
        return
    told = options["start_to_close_timeout"]
    assert isinstance(told, ast.Name), "a name of the module says how long"

    assert getattr(importlib.import_module(module), told.id) <= SOON
