"""The threat model: each answer names the test that holds it, and the test exists."""

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
_TEST = re.compile(r"`(tests/[\w/]+(?:\.py|/))`")


def test_all_threats_are_found() -> None:
    """The table has as many rows as it had when this was written, or more."""
    assert len(THREATS) >= 54


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.split("|")[2].strip()[:60])
def test_each_threat_names_a_test_that_exists(threat: str) -> None:
    """What no test holds is a hope."""
    named = _TEST.findall(threat)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
