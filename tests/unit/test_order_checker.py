"""The checker of orders: it passes what is right, and finds each planted loss, duplicate, invention and regression."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sims.platforms import checker
from sims.platforms.checker import Copy, Findings, State

LEDGER = {
    "ids": [f"o{number}" for number in range(20)],
    "modified_us": [number * 1_000_000 for number in range(20)],
    "versions": [1 + number % 3 for number in range(20)],
}
TRUTH = checker.truth(LEDGER)

Plant = Callable[[list[Copy], list[Copy]], str]


def right() -> list[Copy]:
    """A store that holds it all."""
    return [Copy(order_id, state) for order_id, state in TRUTH.items()]


def _lose(stored: list[Copy], written: list[Copy]) -> str:
    return stored.pop(7).order_id


def _duplicate(stored: list[Copy], written: list[Copy]) -> str:
    stored.append(stored[3])
    return stored[3].order_id


def _invent(stored: list[Copy], written: list[Copy]) -> str:
    stored.append(checker.copy_of("nobody's", 5))
    return "nobody's"


def _leave_stale(stored: list[Copy], written: list[Copy]) -> str:
    stored[5] = Copy("o5", State(4_000_000, 3))
    return "o5"


def _leave_old_version(stored: list[Copy], written: list[Copy]) -> str:
    stored[5] = Copy("o5", State(5_000_000, 2))
    return "o5"


def _regress(stored: list[Copy], written: list[Copy]) -> str:
    """In the end all is right; in between it was not."""
    written += [Copy("o9", State(8_000_000, 1)), Copy("o9", TRUTH["o9"])]
    return "o9"


PLANTS: list[tuple[Plant, str]] = [
    (_lose, "lost"),
    (_duplicate, "duplicated"),
    (_invent, "invented"),
    (_leave_stale, "stale"),
    (_leave_old_version, "stale"),
    (_regress, "regressed"),
]


def list_findings(findings: Findings) -> dict[str, list[str]]:
    """What is not empty."""
    by_name = {each.name: list(getattr(findings, each.name)) for each in fields(findings)}
    return {name: ids for name, ids in by_name.items() if ids}


def test_the_truth_is_clean() -> None:
    """Nothing is found where everything is right, in whatever order it was written."""
    written = random.Random(1).sample(right(), 20)
    assert checker.check(TRUTH, right(), written=written).is_clean


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=lambda value: getattr(value, "__name__", value))
def test_each_plant_is_found_and_nothing_else(plant: Plant, kind: str) -> None:
    """By its id, under its name."""
    stored, written = right(), right()
    order_id = plant(stored, written)
    findings = checker.check(TRUTH, stored, written=written)
    assert list_findings(findings) == {kind: [order_id]}
    assert not findings.is_clean


@given(st.sets(st.integers(0, 19)), st.sets(st.integers(0, 19)))
def test_all_plants_are_counted(lost: set[int], doubled: set[int]) -> None:
    """As many as were planted, in any mixture."""
    kept = [copy for number, copy in enumerate(right()) if number not in lost]
    extra = [copy for number, copy in enumerate(right()) if number in doubled - lost]
    findings = checker.check(TRUTH, kept + extra)
    assert findings.missing == len(lost)
    assert len(findings.duplicated) == len(doubled - lost)


def test_only_the_time_that_was_covered_counts() -> None:
    """What lies behind the mark may be missing, and may be there."""
    expected = checker.truth(LEDGER, from_us=2_000_000, until_us=10_000_000)
    assert set(expected) == {f"o{number}" for number in range(2, 10)}
    stored = [copy for copy in right() if copy.order_id != "o15"]
    assert checker.check(expected, stored, known=TRUTH).is_clean


def test_copies_without_versions_are_judged_by_their_time() -> None:
    """A platform that counts none is not held to them."""
    stored = [checker.copy_of(copy.order_id, copy.state.modified_us / 1e6) for copy in right()]
    assert checker.check(TRUTH, stored, written=stored).is_clean
    stored[4] = checker.copy_of("o4", 3)
    assert list_findings(checker.check(TRUTH, stored)) == {"stale": ["o4"]}
