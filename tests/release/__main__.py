"""`python -m tests.release [SEED]`: all that must hold before a release, in a clean clone of the last commit.

Each step runs whatever became of those before it, but for the installation. The table at the end names what failed and
where its output is. Exit code 1: something failed.

It takes hours: the same command with the seed that it prints goes on with a run that was broken off. What has ended at
this commit is not run again, also where it failed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SYSTEMS = ("downloads", "transfers", "orders", "addresses", "tasks")
WORLDS = 300
RUNS = ".haulage-release"
"""The folder of runs; each has one of its own, named by commit and seed."""


@dataclass(frozen=True)
class Step:
    """A command, and what it shows."""

    name: str
    command: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a step."""

    name: str
    code: int
    seconds: float
    last_line: str


def list_steps(seed: int) -> Iterator[Step]:
    """Yield the steps in order; the first one installs what the others need."""
    yield Step("install and check", ["make", "check"])
    yield Step("shape", ["make", "shape"])
    # Make passes `CI` on: where a test misses a program, it fails instead of being skipped.
    yield Step("tests", ["make", "test-whole", f"SEED={seed}", "CI=1"])
    yield Step("planted defects", ["make", "planted"])
    for system in SYSTEMS:
        yield Step(f"worlds of {system}", ["make", "worlds", f"SYSTEM={system}", f"N={WORLDS}", f"SEED={seed}"])
    yield Step("documents", ["make", "docs"])
    yield Step("clients", [".venv/bin/python", "-m", "tests.release.clients"])
    yield Step("histories", [".venv/bin/python", "-m", "pytest", "--numprocesses", "2", "tests/replay"])
    yield Step("rehearsal", ["make", "rehearsal", f"SEED={seed}"])
    yield Step("small benches", ["make", "bench", "SIZE=small", "STRICT=1"])


def run_step(step: Step, tree: Path, log: Path) -> Outcome:
    """Run a step in a tree; what it prints goes into a file."""
    began = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run(step.command, cwd=tree, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    # Make closes its output with the folder it leaves, which says nothing of the step.
    lines = [each for each in log.read_text(errors="replace").strip().splitlines() if not each.startswith("make[")]
    return Outcome(step.name, code, time.monotonic() - began, lines[-1][:120] if lines else "")


def run_steps(steps: Iterable[Step], folder: Path) -> Iterator[Outcome]:
    """Yield what became of each step, now or in an earlier run of this folder; stop where nothing is installed."""
    for number, step in enumerate(steps):
        log = folder / f"{number:02}-{step.name.replace(' ', '-')}.log"
        record = log.with_suffix(".json")
        if record.exists():
            outcome = Outcome(**json.loads(record.read_text()))
        else:
            outcome = run_step(step, folder / "tree", log)
            record.write_text(json.dumps(asdict(outcome)))
        yield outcome
        if outcome.code and not number:
            return


def clone_into(folder: Path) -> None:
    """Clone the last commit; a clone that was broken off is made again."""
    if (folder / "tree").exists():
        return
    shutil.rmtree(folder / "cloning", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "cloning")], check=True)  # noqa: S607
    (folder / "cloning").rename(folder / "tree")


def render_outcome(outcome: Outcome) -> str:
    """Return the line of the table."""
    verdict = "passed" if outcome.code == 0 else "FAILED"
    return f"{outcome.name:22} {verdict} {outcome.seconds:7.0f} s  {outcome.last_line}"


def main(arguments: Sequence[str]) -> int:
    """Clone, run every step, and print the table."""
    seed = int(arguments[0]) if arguments else int(time.time())
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()  # noqa: S607
    folder = ROOT / RUNS / f"{commit}-{seed}"
    sys.stdout.write(f"SEED={seed} goes on with this run where it is broken off; output in {folder}.\n")
    clone_into(folder)
    failed = []
    for outcome in run_steps(list_steps(seed), folder):
        sys.stdout.write(render_outcome(outcome) + "\n")
        sys.stdout.flush()
        failed += [outcome.name] if outcome.code else []
    sys.stdout.write(f"\nFailed: {', '.join(failed) or 'nothing'}.\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
