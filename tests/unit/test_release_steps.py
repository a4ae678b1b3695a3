"""The steps of a release: each is a target of the Makefile or a module that exists."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.release.__main__ import Outcome, Step, list_steps, render_outcome, run_steps

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


def test_a_missing_program_and_a_fallen_ratio_are_failures() -> None:
    """Tests are run as in CI, and benches strictly; make passes both on."""
    commands = {step.name: step.command for step in list_steps(1)}
    assert "CI=1" in commands["tests"]
    show = ["make", "--no-print-directory", "--eval", "show-ci: ; @echo CI is $$CI", "show-ci", "CI=1"]
    assert subprocess.check_output(show, cwd=ROOT, text=True) == "CI is 1\n"
    planned = subprocess.check_output([*commands["small benches"], "--dry-run"], cwd=ROOT, text=True)
    assert "python -m bench --strict\n" in planned


def test_the_table_says_what_failed() -> None:
    """With the last line that it printed."""
    line = render_outcome(Outcome("tests", 1, 61.4, "2 failed"))
    assert line.split() == ["tests", "FAILED", "61", "s", "2", "failed"]


def test_a_run_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    """What has ended is not run again, also where it failed; without an installation nothing is run."""
    (tmp_path / "tree").mkdir()
    printed = "make[1]: Leaving directory"
    steps = [
        Step(name, [sys.executable, "-c", f"open('{name}', 'a').write('x'); print('{name}\\n{printed}'); exit({code})"])
        for name, code in (("install", 0), ("worlds", 3), ("documents", 0))
    ]
    broken_off = run_steps(steps, tmp_path)
    first = [next(broken_off), next(broken_off)]

    again = list(run_steps(steps, tmp_path))

    assert again[:2] == first
    assert [(each.name, each.code, each.last_line) for each in again] == [
        ("install", 0, "install"),
        ("worlds", 3, "worlds"),
        ("documents", 0, "documents"),
    ]
    assert [(tmp_path / "tree" / each.name).read_text() for each in steps] == ["x", "x", "x"]
    (tmp_path / "00-install.json").write_text('{"name": "install", "code": 2, "seconds": 1, "last_line": "no"}')
    assert [each.code for each in run_steps(steps, tmp_path)] == [2]
