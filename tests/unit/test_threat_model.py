"""The threat model: each answer names the tests that hold it; `test_docs.py` sees that they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREATS = [
    line
    for line in (ROOT / "docs" / "THREAT_MODEL.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| | threat |")
]


def test_all_threats_are_found() -> None:
    """The table has as many rows as it had when this was written, or more."""
    assert len(THREATS) >= 62


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.split("|")[2].strip()[:60])
def test_each_threat_names_a_test(threat: str) -> None:
    """By its file and its name: a file alone is too much to read. What no test holds is a hope."""
    answer, column = threat.rstrip(" |").rsplit("|", 1)
    assert re.fullmatch(r"( `tests/[\w/]+\.py::[Tt]est\w+`,?)+", column)
    assert "`tests/" not in answer
