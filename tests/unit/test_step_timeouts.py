"""A step whose worker or engine dies is begun again soon: it beats, or it may not take long."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pytest

from workflows import activity_calls

ROOT: Final = Path(__file__).parent.parent.parent
PLANS: Final = [path for path in sorted((ROOT / "workflows").rglob("*.py")) if path.stem != "activity_calls"]
SOON: Final = timedelta(minutes=1)
"""How long a lost activity may stay unnoticed."""


def steps() -> Iterator[tuple[str, ast.Call]]:
    """All places where a plan has a step done, and the module of each."""
    for path in PLANS:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_step(node.func.attr):
                yield module, node


def options(module: str, step: ast.Call) -> dict[str, Any]:
    """What a step is given: the row of the table that it unpacks, and what it names besides."""
    found: dict[str, Any] = {}
    for each in step.keywords:
        if each.arg is not None:
            found[each.arg] = each.value
        else:
            names = ast.unparse(each.value).split(".")
            found |= reduce(getattr, names, importlib.import_module(module))
    return found


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
    given = options(module, step)
    assert "heartbeat_timeout" in given or given["start_to_close_timeout"] <= SOON
    assert "retry_policy" in given


@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.relative_to(ROOT)))
def test_retries_are_defined_in_the_table_of_steps(path: Path) -> None:
    """Who changes how a kind of step is retried changes it for all steps of this kind."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert [ast.unparse(call) for call in calls if ast.unparse(call.func).endswith("RetryPolicy")] == []


def test_a_step_is_given_up_on_what_no_further_attempt_mends() -> None:
    """The errors are named for the one step; other steps with the same row are tried again after them."""
    strict = activity_calls.disable_retry_on_error_types(activity_calls.FILE_MAKING, ValueError, KeyError)

    assert strict["retry_policy"].non_retryable_error_types == ["ValueError", "KeyError"]
    assert strict["heartbeat_timeout"] == activity_calls.FILE_MAKING["heartbeat_timeout"]
    assert activity_calls.FILE_MAKING["retry_policy"] == activity_calls.UNTIL_DONE
    assert activity_calls.UNTIL_DONE.non_retryable_error_types is None
