"""The steps of a release: each is a target of the Makefile or a module that exists."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from tests.release.__main__ import Outcome, Step, list_steps, render_outcome

ROOT = Path(__file__).parents[2]


def test_each_step_can_be_run() -> None:
    """A target that was renamed would fail hours into a release."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step.command for step in list_steps(1)]

    assert {command[1] for command in commands if command[0] == "make"} <= targets
    modules = [command[2] for command in commands if command[0] != "make"]
    assert modules
    assert all(find_spec(module) for module in modules)


def test_every_system_has_its_worlds() -> None:
    """300 of each, by the seed of the release."""
    played = [step.command[2:] for step in list_steps(7) if step.name.startswith("worlds")]
    assert played == [
        [f"SYSTEM={system}", "N=300", "SEED=7"] for system in ("downloads", "transfers", "orders", "addresses", "tasks")
    ]


def test_the_table_says_what_failed() -> None:
    """With the last line that it printed."""
    line = render_outcome(Outcome(Step("tests", []), 1, 61.4, "2 failed"))
    assert line.split() == ["tests", "FAILED", "61", "s", "2", "failed"]
