"""The threat model: each answer names the tests that hold it, and each of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREATS = [
    line
    for line in (ROOT / "docs" / "THREAT_MODEL.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| | threat |")
]
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_all_threats_are_found() -> None:
    """The table has as many rows as it had when this was written, or more."""
    assert len(THREATS) >= 62


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.split("|")[2].strip()[:60])
def test_each_threat_names_tests_that_exist(threat: str) -> None:
    """What no test holds is a hope; a test that was renamed or removed is missed here."""
    answer, column = threat.rstrip(" |").rsplit("|", 1)
    named = _TEST.findall(column)
    assert named
    assert [f"{path}::{name}" for path, name in named if name not in _list_tests(path)] == []
    assert "`tests/" not in answer


@cache
def _list_tests(path: str) -> set[str]:
    """The functions and classes of tests of a file."""
    tree = ast.parse((ROOT / path).read_text()) if (ROOT / path).exists() else ast.Module(body=[], type_ignores=[])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name.lower().startswith("test")}
