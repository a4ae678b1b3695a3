"""The record of the foundation: of this version, and with every figure that a newcomer's first minutes are held to."""

from __future__ import annotations

import json

import pytest

from bench.report import RESULTS
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
