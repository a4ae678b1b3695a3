"""The record of the foundation: of this version, and with every figure that a newcomer's first minutes are held to."""

from __future__ import annotations

import json

import pytest

from bench.report import RESULTS, Figure, describe_falls
from domain import VERSION

RECORD = json.loads((RESULTS / "foundation.json").read_text())
BOUNDED = {
    "first work of `make demo`",
    "ready, over the slowest of engine, database and store",
    "processor seconds of Haulage's processes until ready, over one import",
    "processor of an idle installation",
    "memory of an idle installation",
}


def test_the_record_is_of_this_version() -> None:
    """A release measures again: `make bench-foundation` on a quiet machine."""
    assert RECORD.get("version") == VERSION


@pytest.mark.parametrize("name", sorted(BOUNDED))
def test_the_record_says_what_is_to_be_reached(name: str) -> None:
    """Each figure has a bound, and says whether it holds and how it was measured."""
    [figure] = [figure for figure in RECORD["figures"] if figure["name"] == name]
    assert figure["reach"].startswith("≤ ")
    assert figure["holds"] is (figure["value"] <= float(figure["reach"].removeprefix("≤ ")))
    assert figure["how"]


def test_a_ratio_that_fell_by_more_than_a_quarter_is_named() -> None:
    """Whichever way is better; what has no record, and what is no ratio, is not compared."""
    before = {"quicker": 2.0, "slower": 2.0, "less": 1.0, "more": 1.0, "rate": 100.0}
    ran = [
        Figure("quicker", 1.6, "×", ""),
        Figure("slower", 1.4, "×", ""),
        Figure("less", 1.3, "×", "", "≤ 2"),
        Figure("more", 1.4, "×", "", "≤ 2"),
        Figure("rate", 10.0, "1/s", ""),
        Figure("new", 0.1, "×", ""),
    ]

    assert describe_falls(before, ran) == [
        "Worse by more than a quarter: slower: 1.40, recorded 2.00",
        "Worse by more than a quarter: more: 1.40, recorded 1.00",
    ]
