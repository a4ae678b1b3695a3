"""Which process of a test run gets which tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import scheduling

TESTS = Path(__file__).parents[1]
FILES = [str(path.relative_to(TESTS.parent)) for path in sorted(TESTS.glob("*/test_*.py"))]


@pytest.mark.parametrize("path", [path for paths in scheduling.TOGETHER for path in paths])
def test_what_stays_together_exists(path: str) -> None:
    """A file that was renamed would silently go to another process."""
    assert any(file.startswith(path) for file in FILES)


def test_files_of_one_unit_come_one_after_the_other() -> None:
    """A unit begins when its first test is met: one that comes late would make all of it late."""
    ordered = sorted(FILES, key=scheduling.order)
    units = [scheduling.find_unit(file) for file in ordered]
    changes = [unit for before, unit in zip([None, *units], units, strict=False) if unit != before]
    assert len(changes) == len(set(changes))


def test_those_that_kill_are_two_units() -> None:
    """Both are begun before anything else."""
    killing = {scheduling.find_unit(file) for file in FILES if file.startswith("tests/faults/")}
    ordered = sorted(FILES, key=scheduling.order)
    assert len(killing) == 2
    assert {scheduling.find_unit(file) for file in ordered[: len([f for f in FILES if "/faults/" in f])]} == killing


def test_a_test_that_ends_its_process_ends_the_run_and_is_named(tmp_path: Path) -> None:
    """The run waited for ever for files that were given out again."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_crash.py").write_text(
        "import os\ndef test_before(): pass\ndef test_crash(): os._exit(2)\ndef test_after(): pass\n"
    )
    plugins = ("-p", "no:randomly", "-p", "tests.support.scheduling")

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "pytest.ini", *plugins, "--dist", "loadfile", "-n", "1"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS.parent), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert "Exit: test_crash.py::test_crash ended the process that it ran in." in ended.stdout
    assert "1 passed" in ended.stdout
