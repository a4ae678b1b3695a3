"""Plant defects in copies of the tree, one at a time, and see the tests that should notice it fail.

`make planted`, or `python -m tests.planted NAME …` for some. First all these tests run once without a defect: where
they fail then, their failing says nothing about a defect. A defect that no test notices is a promise that nothing
keeps; so is one whose text has moved: a new promise brings its planted defect to `defects/`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.planted.defect import Defect
from tests.planted.defects import DEFECTS
from tests.planted.selecting import RESULTS, SELECTIONS, Result

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
STOP_SECONDS = 60
"""What the start and the end of a run take beside its tests."""
BASELINE_TIMEOUT_SECONDS = 1_800
TEST_TIMEOUT_SECONDS = 300
HUNG_SECONDS_MIN, HUNG_TIMES = 60, 5
"""What waits for something that a defect keeps from happening is not waited for as long as a busy machine may take."""
TIMED_OUT = "from pytest-timeout"
TESTS_FAILED = 1
"""Pytest's exit code where tests ran and some failed; any other says that none ran."""
KILLED = -signal.SIGKILL
"""The exit code of a run that took too long."""
NOTICED = re.compile(r"^\d+ failed", re.MULTILINE)
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/\S+)", re.MULTILINE)
OUTPUT_MAX = 3_000
SEED, DRAWS = 2, 8
"""Draws the worlds: a family of a dozen may have none in which a rare defect shows, and whether one shows depends on
the moment. So those that notice nothing are drawn again, with the seeds that follow."""


@dataclass(frozen=True)
class Outcome:
    """What became of one defect."""

    defect: Defect
    word: str
    """`noticed`; `hung` where the tests took far longer than without it, which they notice, too; `MISSED`."""
    seconds: float
    output: str

    @property
    def noticed_by(self) -> str:
        """The first test that failed."""
        failed = FAILED_TEST.search(self.output)
        return failed[1] if failed and self.word != "MISSED" else ""


def copy_tree(folder: Path) -> None:
    """Copy what git knows, and what it would add, beside the installed packages."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - whatever git is installed
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())


@contextmanager
def apply_defect(defect: Defect, folder: Path) -> Iterator[None]:
    """Put a defect into a copy of the tree, and take it out again.

    Raises:
        ValueError: A text that it replaces is not there once.
    """
    originals = {path: (path.read_text(), path.stat()) for path in (folder / each.file for each in defect.changes)}
    try:
        for change in defect.changes:
            path = folder / change.file
            text = path.read_text()
            if (found := text.count(change.text)) != 1:
                raise ValueError(f"{defect.name}: {change.file} has {change.text!r} {found} times, not once")
            path.write_text(text.replace(change.text, change.planted))
        yield
    finally:
        for path, (text, stat) in originals.items():
            path.write_text(text)
            # With its time, too, so that what Python compiled of the defect is not taken for it.
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@asynccontextmanager
async def copies(count: int) -> AsyncIterator[asyncio.Queue[Path]]:
    """Make copies of the tree that are used again and again, so that modules are compiled once."""
    with tempfile.TemporaryDirectory(prefix="haulage-planted-") as name:
        free: asyncio.Queue[Path] = asyncio.Queue()
        for number in range(count):
            folder = Path(name) / str(number)
            await asyncio.to_thread(copy_tree, folder)
            free.put_nowait(folder)
        yield free


async def run_tests(
    folder: Path, arguments: Sequence[str], timeout_seconds: float, environment: Mapping[str, str], seed: int = SEED
) -> tuple[int | None, str]:
    """Run pytest in a copy of the tree, and return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--randomly-seed", str(seed), *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_seconds)
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
    return process.returncode, output.decode(errors="replace")


async def measure_baseline(selections: Sequence[tuple[str, ...]], folder: Path) -> list[Result]:
    """Run every selection's tests without a defect, all in one run.

    Raises:
        RuntimeError: The run ended before it could report.
    """
    results = folder / "baseline.json"
    files = dict.fromkeys(name for arguments in selections for name in arguments if name.startswith("tests/"))
    environment = {SELECTIONS: json.dumps(selections), RESULTS: str(results)}
    options = ("-p", "tests.planted.selecting", "-m", "", "--timeout", str(TEST_TIMEOUT_SECONDS))
    arguments = (*options, "--numprocesses", str(AT_ONCE), *files)
    _, output = await run_tests(folder, arguments, BASELINE_TIMEOUT_SECONDS, environment)
    if not results.exists():
        raise RuntimeError(f"The tests could not be run without a defect:\n{output[-OUTPUT_MAX:]}")
    return [Result(**each) for each in json.loads(results.read_text())]


async def attempt(defect: Defect, usual_seconds: float, free: asyncio.Queue[Path]) -> Outcome:
    """Run the tests that should notice a defect.

    Args:
        defect: What to plant.
        usual_seconds: What they take without it.
        free: Copies of the tree that are free.
    """
    folder = await free.get()
    began = time.monotonic()
    try:
        with apply_defect(defect, folder):
            hung_seconds = min(TEST_TIMEOUT_SECONDS, max(HUNG_SECONDS_MIN, HUNG_TIMES * usual_seconds))
            options = ("-x", "--hypothesis-profile", "unshrunk", "--timeout", f"{hung_seconds:.0f}")
            # A test that is over may have left what waits: that is not waited for.
            tests, seconds = (*options, *defect.tests), hung_seconds + STOP_SECONDS
            draws = DRAWS if any(name.startswith("tests/worlds/") for name in defect.tests) else 1
            for seed in range(SEED, SEED + draws):
                code, output = await run_tests(folder, tests, seconds, {}, seed)
                if (word := judge(code, output)) != "MISSED":
                    break
    finally:
        free.put_nowait(folder)
    return Outcome(defect, word, time.monotonic() - began, output)


def judge(code: int | None, output: str) -> str:
    """Return the word for a run of tests by its exit code and what it printed."""
    if code == KILLED:
        return "hung"
    if code == TESTS_FAILED and NOTICED.search(output):
        return "hung" if TIMED_OUT in output else "noticed"
    return "MISSED"


def report(word: str, seconds: float, defect: Defect, by: str = "") -> None:
    """Print what became of a defect, and by which test."""
    sys.stdout.write(f"{word:<8}{seconds:5.0f} s  {defect.system:<10} {defect.name}{by and f' ({by})'}\n")
    sys.stdout.flush()


async def main(names: list[str]) -> int:
    """Plant those that are named, or all; print a line for each; return how many no test noticed for sure."""
    unknown = set(names) - {defect.name for defect in DEFECTS}
    if unknown:
        sys.stderr.write(f"No such defect: {', '.join(sorted(unknown))}.\n")
        return 2
    began = time.monotonic()
    chosen = [defect for defect in DEFECTS if not names or defect.name in names]
    selections = list(dict.fromkeys(defect.tests for defect in chosen))
    async with copies(AT_ONCE) as free:
        baseline = dict(zip(selections, await measure_baseline(selections, await _first(free)), strict=True))
        red = [selection for selection in selections if not baseline[selection].is_green]
        sys.stdout.write(
            f"Without a defect: {len(selections) - len(red)} of {len(selections)} selections of tests pass, "
            f"{time.monotonic() - began:.0f} s.\n"
        )
        for defect in chosen:
            if defect.tests in red:
                report("UNKNOWN", 0, defect)
                sys.stdout.write(f"  without it: {baseline[defect.tests]}\n")
        # The longest first, so that none is left over at the end.
        clear = [(each, baseline[each.tests].seconds) for each in chosen if each.tests not in red]
        clear.sort(key=lambda each: -each[1])
        noticed = await _attempt_all(clear, free)
    sys.stdout.write(
        f"{noticed} of {len(chosen)} planted defects were noticed, {len(chosen) - len(clear)} could not be judged; "
        f"{time.monotonic() - began:.0f} s.\n"
    )
    return len(chosen) - noticed


async def _first(free: asyncio.Queue[Path]) -> Path:
    """Return a copy, and leave it to the next."""
    folder = await free.get()
    free.put_nowait(folder)
    return folder


async def _attempt_all(defects: Sequence[tuple[Defect, float]], free: asyncio.Queue[Path]) -> int:
    """Plant one after the other in each copy, and count those that were noticed."""
    noticed = 0
    tasks = [asyncio.create_task(attempt(defect, seconds, free)) for defect, seconds in defects]  # begin in this order
    for ended in asyncio.as_completed(tasks):
        outcome = await ended
        report(outcome.word, outcome.seconds, outcome.defect, outcome.noticed_by)
        noticed += outcome.word != "MISSED"
        if outcome.word == "MISSED":
            sys.stdout.write(outcome.output[-OUTPUT_MAX:] + "\n")
    return noticed


if __name__ == "__main__":
    raise SystemExit(min(1, asyncio.run(main(sys.argv[1:]))))
