"""`python -m tests.release [SEED]`: all that must hold before a release, in a clean clone of the last commit.

Each step runs whatever became of those before it, but for the installation. The table at the end names what failed and
where its output is. Exit code 1: something failed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SYSTEMS = ("downloads", "transfers", "orders", "addresses", "tasks")
WORLDS = 300


@dataclass(frozen=True)
class Step:
    """A command, and what it shows."""

    name: str
    command: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a step."""

    step: Step
    code: int
    seconds: float
    last_line: str


def list_steps(seed: int) -> Iterator[Step]:
    """Yield the steps in order; the first one installs what the others need."""
    yield Step("install and check", ["make", "check"])
    yield Step("shape", ["make", "shape"])
    yield Step("tests", ["make", "test", f"SEED={seed}"])
    yield Step("planted defects", ["make", "planted"])
    for system in SYSTEMS:
        yield Step(f"worlds of {system}", ["make", "worlds", f"SYSTEM={system}", f"N={WORLDS}", f"SEED={seed}"])
    yield Step("documents", ["make", "docs"])
    yield Step("clients", [".venv/bin/python", "-m", "tests.release.clients"])
    yield Step("histories", [".venv/bin/python", "-m", "pytest", "--numprocesses", "2", "tests/replay"])
    yield Step("rehearsal", ["make", "rehearsal", f"SEED={seed}"])
    yield Step("small benches", ["make", "bench", "SIZE=small"])


def run_step(step: Step, tree: Path, log: Path) -> Outcome:
    """Run a step in a tree; what it prints goes into a file."""
    began = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run(step.command, cwd=tree, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    lines = log.read_text(errors="replace").strip().splitlines()
    return Outcome(step, code, time.monotonic() - began, lines[-1][:120] if lines else "")


def render_outcome(outcome: Outcome) -> str:
    """Return the line of the table."""
    verdict = "passed" if outcome.code == 0 else "FAILED"
    return f"{outcome.step.name:22} {verdict} {outcome.seconds:7.0f} s  {outcome.last_line}"


def main(arguments: Sequence[str]) -> int:
    """Clone, run every step, and print the table."""
    seed = int(arguments[0]) if arguments else int(time.time())
    folder = Path(tempfile.mkdtemp(prefix="haulage-release-"))
    tree = folder / "tree"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tree)], check=True)  # noqa: S607
    outcomes: list[Outcome] = []
    for number, step in enumerate(list_steps(seed)):
        log = folder / f"{number:02}-{step.name.replace(' ', '-')}.log"
        outcomes.append(run_step(step, tree, log))
        sys.stdout.write(render_outcome(outcomes[-1]) + "\n")
        sys.stdout.flush()
        if outcomes[-1].code and not number:
            break
    failed = [outcome.step.name for outcome in outcomes if outcome.code]
    sys.stdout.write(f"\nSEED={seed}; output in {folder}. Failed: {', '.join(failed) or 'nothing'}.\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
