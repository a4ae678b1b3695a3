"""Each behaviour of the catalogue is played by a flaw, or a sentence says why it is not."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from pathlib import Path

import pytest

from tests.worlds.catalogue import Row, list_gaps
from tests.worlds.flaws import Kind, See

SYSTEMS = sorted(path.parent.name for path in (Path(__file__).parents[1] / "worlds").glob("*/catalogue.py"))
REASON = "Only those who read the file do this, the source does not."


class Group(StrEnum):
    """Of flaws of these tests."""

    ONE = "one"


FINE = {1: Row("short pages", flaws=("short",)), 2: Row("prefetch", reason=REASON)}
KINDS = {"short": Kind(1, Group.ONE)}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_behaviour_of_a_system_is_played(system: str) -> None:
    """The rows of its catalogue and its kinds of flaws agree."""
    catalogue = import_module(f"tests.worlds.{system}.catalogue").CATALOGUE
    assert list_gaps(catalogue, import_module(f"tests.worlds.{system}.flaws").KINDS) == []


def test_a_whole_catalogue_has_no_gap() -> None:
    """Flaws play one row, a sentence excuses the other."""
    assert list_gaps(FINE, KINDS, "") == []


@pytest.mark.parametrize(
    ("rows", "kinds", "words"),
    [
        pytest.param({2: Row("slow")}, {}, "row 2: no flaw plays 'slow'", id="row-without-flaw"),
        pytest.param({2: Row("slow", reason="n/a")}, {}, "is no sentence", id="reason-without-words"),
        pytest.param({2: Row("slow", flaws=("slow",))}, {}, "flaw slow does not exist", id="flaw-that-is-gone"),
        pytest.param({3: Row("slow", reason=REASON)}, {}, "number them from 1", id="row-left-out"),
        pytest.param({}, {"more": Kind(1, Group.ONE)}, "flaw more is of row 1, which", id="flaw-of-no-row"),
        pytest.param({}, {"more": Kind(9, Group.ONE)}, "flaw more is of row 9, which", id="row-that-is-not-there"),
        pytest.param({1: Row("short", See.ASKED, ("short",))}, {}, "short is marked k, the row k+", id="other-mark"),
        pytest.param({1: Row("short", flaws=("short",), reason=REASON)}, {}, "a reason says why none", id="both"),
        pytest.param(
            {2: Row("prefetch", reason=REASON, shown_by=("tests/unit/test_worlds_catalogue.py::test_gone",))},
            {},
            "::test_gone does not exist",
            id="test-that-is-gone",
        ),
    ],
)
def test_a_gap_is_found(rows: dict[int, Row], kinds: dict[str, Kind], words: str) -> None:
    """One thing is wrong with a catalogue, and one sentence says it."""
    catalogue = dict(FINE)
    if 3 in rows:
        del catalogue[2]
    [gap] = list_gaps(catalogue | rows, KINDS | kinds, "")
    assert words in gap


def test_a_changed_mark_is_allowed_where_the_decision_names_the_flaw() -> None:
    """The name stands in the text as code."""
    catalogue = FINE | {1: Row("short", See.ASKED, ("short",))}
    assert list_gaps(catalogue, KINDS, "Marked `short`: …") == []
    assert len(list_gaps(catalogue, KINDS, "Marked short: …")) == 1
