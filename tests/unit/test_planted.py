"""The defects that `make planted` plants can be planted: what they replace is there, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.planted.defects import DEFECTS, Defect

ROOT = Path(__file__).parents[2]
SYSTEMS = ("downloads", "transfers", "orders", "addresses", "tasks")


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_what_a_defect_replaces_is_there_once(defect: Defect) -> None:
    """And the tests that should notice it exist."""
    assert [(ROOT / each.file).read_text().count(each.text) for each in defect.changes] == [1] * len(defect.changes)
    assert all((ROOT / name.partition("::")[0]).exists() for name in defect.tests if name.startswith("tests/"))


def test_each_system_has_some() -> None:
    """Two or more, under names of their own."""
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    counts = Counter(defect.system for defect in DEFECTS)
    assert min(counts[system] for system in SYSTEMS) >= 2
