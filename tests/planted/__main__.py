"""Plant defects in copies of the tree, one at a time, and see the tests that should notice it fail.

`make planted`, or `python -m tests.planted NAME …` for some. A defect that no test notices is a promise that nothing
keeps; so is one whose text has moved: a new promise brings its planted defect to `defects.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.planted.defects import DEFECTS, Defect

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
TIMEOUT_SECONDS = 420
TESTS_FAILED = 1
"""Pytest's exit code where tests ran and some failed; any other says that none ran."""
NOTICED = re.compile(r"^\d+ failed", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of one defect."""

    defect: Defect
    noticed: bool
    seconds: float
    output: str


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


def plant(defect: Defect, folder: Path) -> None:
    """Put a defect into a copy of the tree.

    Raises:
        ValueError: A text that it replaces is not there once.
    """
    for change in defect.changes:
        path = folder / change.file
        text = path.read_text()
        if (found := text.count(change.text)) != 1:
            raise ValueError(f"{defect.name}: {change.file} has {change.text!r} {found} times, not once")
        path.write_text(text.replace(change.text, change.planted))


async def attempt(defect: Defect, places: asyncio.Semaphore) -> Outcome:
    """Run the tests that should notice a defect."""
    async with places:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="haulage-planted-") as name:
            folder = Path(name)
            await asyncio.to_thread(copy_tree, folder)
            plant(defect, folder)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pytest", "-q", "-x", "--timeout", "300", *defect.tests),
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(folder)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
            except TimeoutError:
                process.kill()
                output, _ = await process.communicate()
        text = output.decode(errors="replace")
        noticed = process.returncode == TESTS_FAILED and NOTICED.search(text) is not None
        return Outcome(defect, noticed, time.monotonic() - began, text)


async def main(names: list[str]) -> int:
    """Plant those that are named, or all; print a line for each; return how many no test noticed."""
    unknown = set(names) - {defect.name for defect in DEFECTS}
    if unknown:
        sys.stderr.write(f"No such defect: {', '.join(sorted(unknown))}.\n")
        return 2
    places = asyncio.Semaphore(AT_ONCE)
    chosen = [defect for defect in DEFECTS if not names or defect.name in names]
    missed = 0
    for ended in asyncio.as_completed([attempt(defect, places) for defect in chosen]):
        outcome = await ended
        missed += not outcome.noticed
        word = "noticed" if outcome.noticed else "MISSED "
        sys.stdout.write(f"{word} {outcome.seconds:5.0f} s  {outcome.defect.system:<10} {outcome.defect.name}\n")
        if not outcome.noticed:
            sys.stdout.write(outcome.output[-3_000:] + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} planted defects were noticed.\n")
    return missed


if __name__ == "__main__":
    raise SystemExit(min(1, asyncio.run(main(sys.argv[1:]))))
