"""A run says what it could not test here; CI, where all of it can be installed, fails instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import requirements
from tests.support.selecting import mark_long_except

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from tests.support.requirements import MARIADB, NPM

def test_on_a_database():
    MARIADB.require()

def test_of_accessibility():
    NPM.require()

def test_that_fails():
    assert False

@pytest.mark.long
def test_that_takes_long():
    pass
"""
LAST = (
    "Not tested here: 1 tests of the module library on MySQL (MariaDB), 1 tests of the console's accessibility (npm). "
    "To test them: apt-get install --no-install-recommends mariadb-server npm"
)


def run(folder: Path, *arguments: str, **environment: str) -> str:
    """Run the tests above where none of the programs is found, and return what was printed."""
    (folder / "test_small.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    inherited = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.reporting", "-ra", *arguments],
        cwd=folder,
        env={**inherited, "PATH": "", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    mark_long_except([(), ("--quiet",), ("--numprocesses", "1")], [(), ("--quiet",)]),
    ids=["long", "quiet", "distributed"],
)
def test_the_last_line_says_what_was_skipped_and_how_to_get_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """After pytest's own summary and totals, however the run is made."""
    *before, last = run(tmp_path, *arguments).splitlines()
    assert last == LAST
    assert "1 failed, 1 passed, 2 skipped" in before[-1]


@pytest.mark.parametrize("arguments", [(), ("--numprocesses", "2")], ids=["alone", "distributed"])
@pytest.mark.long
def test_what_is_left_to_the_whole_suite_is_counted(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Once, although each process leaves it out."""
    left = "1 tests that take long were left to `make test-whole`."
    assert left in run(tmp_path, "-m", "not long", *arguments).splitlines()
    assert "tests that take long" not in run(tmp_path, *arguments)


def test_a_program_that_ci_lacks_fails_the_tests_that_need_it(tmp_path: Path) -> None:
    """Nothing is skipped there, so nothing is said to be missing."""
    printed = run(tmp_path, CI="1")
    assert "3 failed, 1 passed" in printed.splitlines()[-1]
    assert "MariaDB is not installed, and CI installs what tests need: see .ci/run" in printed


def test_the_script_of_ci_is_such_a_run(tmp_path: Path) -> None:
    """Both of its steps see `CI`, also where the machine does not set it."""
    bash, dirname, env = (shutil.which(name) for name in ("bash", "dirname", "env"))
    assert bash
    assert dirname
    assert env
    for name, path in (("dirname", dirname), ("env", env), ("bash", bash)):
        (tmp_path / name).symlink_to(path)
    make, steps = tmp_path / "make", tmp_path / "steps"
    make.write_text(f'#!{bash}\necho "CI=$CI $1" >>{steps}\n')
    make.chmod(0o700)
    subprocess.run([bash, str(ROOT / ".ci" / "run")], env={"PATH": str(tmp_path)}, check=True)
    assert steps.read_text().splitlines() == ["CI=1 check", "CI=1 test"]


def test_no_program_is_left_out_of_the_last_line() -> None:
    """Each that a test can ask for is looked for among what was skipped."""
    programs = {each for each in vars(requirements).values() if isinstance(each, requirements.Program)}
    assert programs == set(requirements.PROGRAMS)


def test_what_no_package_brings_is_said_how_to_get() -> None:
    """flowSvr's SDK is a checkout whose path is given."""
    line = requirements.explain({requirements.REDIS: 2, requirements.SDK: 1})
    assert "2 tests of flowSvr's own SDK (Redis), 1 tests of flowSvr's own SDK (flowSvr's SDK)" in line
    assert line.endswith("apt-get install --no-install-recommends redis-server; set COMPAT_SDK to a checkout of it")
    assert requirements.explain({requirements.SDK: 1}).endswith("To test them: set COMPAT_SDK to a checkout of it")
