"""The defects that `make planted` plants can be planted: what they replace is there, once."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression, ExpressionMatcher

from systems import SYSTEMS
from tests.planted.__main__ import apply_defect
from tests.planted.defect import Defect
from tests.planted.defects import DEFECTS
from tests.planted.selecting import RESULTS, SELECTIONS, Result, Selection
from tests.worlds.suite import WorldTests

ROOT = Path(__file__).parents[2]
WORLDS = ROOT / "tests" / "worlds"
PROMISES = ROOT / "docs" / "RELIABILITY.md"
UNPLANTED = {
    "Many downloads at once under kills all end right": "what the promises above it do together",
    "A worker stays below 400 MB under large pages and many exports, and comes back down": "only long runs show it",
}
"""Promises without a planted defect, and why."""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_what_a_defect_replaces_is_there_once(defect: Defect) -> None:
    """And the tests that should notice it exist."""
    assert [(ROOT / each.file).read_text().count(each.text) for each in defect.changes] == [1] * len(defect.changes)
    assert all((ROOT / name.partition("::")[0]).exists() for name in defect.tests if name.startswith("tests/"))


@pytest.mark.parametrize("arguments", sorted({defect.tests for defect in DEFECTS}), ids=" ".join)
def test_each_selection_has_a_test(arguments: tuple[str, ...]) -> None:
    """A test that is renamed takes its `-k` with it: a selection without tests notices nothing."""
    selection = Selection.parse(arguments)
    expression = Expression.compile(selection.keywords or "test")
    names = [
        name
        for file, _, test in (path.partition("::") for path in selection.paths)
        for name in _list_tests(ROOT / file)
        if not test or test.rpartition("::")[2] in name.split()
    ]
    assert any(expression.evaluate(_build_matcher(name)) for name in names)


def _build_matcher(name: str) -> ExpressionMatcher:
    """Return what says whether a word of `-k` is in a name, as pytest does."""

    def matches(word: str, /, **_: object) -> bool:
        return word.lower() in name.lower()

    return matches


def _list_tests(path: Path) -> Iterator[str]:
    """List the tests of a file or a folder, each with what its name may come from besides: class and parameters."""
    for file in [path] if path.is_file() else sorted(path.glob("test_*.py")):
        module = ast.parse(file.read_text())
        values = " ".join(ast.unparse(each) for each in module.body if isinstance(each, ast.Assign))
        classes = [each for each in module.body if isinstance(each, ast.ClassDef)]
        for holder, body in (("", module.body), *((each.name, each.body) for each in classes)):
            for each in body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    decorators = " ".join(map(ast.unparse, each.decorator_list))
                    yield f"{file.name} {holder} {each.name} {decorators} {values if decorators else ''}"
        if any("WorldTests" in ast.unparse(base) for each in classes for base in each.bases):
            system = file.stem.removeprefix("test_")
            families = file.read_text() + "".join(each.read_text() for each in (WORLDS / system).rglob("*.py"))
            yield from (f"{name} {families}" for name in dir(WorldTests) if name.startswith("test_"))


def test_each_system_has_some() -> None:
    """Two or more, under names of their own."""
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    counts = Counter(defect.system for defect in DEFECTS)
    assert min(counts[system] for system in SYSTEMS) >= 2


def test_each_promise_has_one() -> None:
    """A test that shows the promise must notice a defect; what has none is named above."""
    page = PROMISES.read_text().partition("| promise |")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    planted_in = [name.partition("::")[0] for defect in DEFECTS for name in defect.tests if name.startswith("tests/")]
    without = {
        promise
        for promise, _, shown in rows
        if not any(path.startswith(name) for path in re.findall(r"tests/[\w/]+\.py", shown) for name in planted_in)
    }
    assert without == UNPLANTED.keys()


@pytest.mark.parametrize("arguments", [(), ("--numprocesses", "1")], ids=["alone", "distributed"])
@pytest.mark.long
def test_one_run_without_defects_judges_each_selection(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A red test spoils only the selections that have it; so does having no test that ran."""
    (tmp_path / "test_small.py").write_text(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert False\n"
        "@pytest.mark.skip\ndef test_left_out(): pass\n"
        "@pytest.mark.soak\ndef test_right_but_long(): pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = soak\n")
    selections = (
        ("test_small.py", "-k", "right"),
        ("test_small.py",),
        ("test_small.py", "-k", "left_out"),
        ("test_small.py", "-m", "soak", "-k", "right"),
        ("test_small.py::test_right", "other.py", "-m", ""),
    )
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.planted.selecting", *arguments, "test_small.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), SELECTIONS: json.dumps(selections), RESULTS: str(results)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = [Result(**each) for each in json.loads(results.read_text())]
    judged = [(each.passed, each.is_green) for each in found]
    assert judged == [(1, True), (1, False), (0, False), (1, True), (1, True)]
    assert found[1].failed == ["test_small.py::test_wrong"]


def test_a_planted_defect_is_taken_out_again(tmp_path: Path) -> None:
    """The copy is the original's again, its time included: else what was compiled of the defect would be run."""
    defect = DEFECTS[0]
    original, copy = ROOT / defect.file, tmp_path / defect.file
    copy.parent.mkdir(parents=True)
    shutil.copy2(original, copy)
    before = copy.stat().st_mtime_ns
    with apply_defect(defect, tmp_path):
        assert defect.planted in copy.read_text()
        assert copy.stat().st_mtime_ns != before
    assert (copy.read_text(), copy.stat().st_mtime_ns) == (original.read_text(), before)
