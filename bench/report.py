"""Report: the figures of a benchmark as a table for people and a JSON file for programs."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from domain import VERSION

RESULTS = Path(__file__).parent / "results"
RATIO = "×"
OTHERS_MAX_CORES = 0.1
"""What other programs may use of the machine while something is measured that is to be recorded."""
FALL_MAX = 0.25
"""A ratio that is worse than its record by a larger share is named at the end."""


@dataclass(frozen=True)
class Figure:
    """A measured figure, and its target if it has one."""

    name: str
    value: float
    unit: str
    how: str
    reach: str = ""
    holds: bool | None = None


def describe_machine() -> dict[str, object]:
    """Return the machine of the measurement."""
    return {
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "system": platform.system(),
        "python": platform.python_version(),
    }


_figures_of_runs: dict[str, list[list[Figure]]] = {}
"""Of each record, what the runs of this process have measured so far."""


def publish(system: str, figures: list[Figure]) -> None:
    """Print the table and what is much worse than the committed record, and write the file.

    Of several runs in one process, the record has the medians.
    """
    runs = _figures_of_runs.setdefault(system, [])
    runs.append(figures)
    figures = build_medians(runs)
    RESULTS.mkdir(exist_ok=True)
    document = {"version": VERSION, "machine": describe_machine(), "figures": [asdict(figure) for figure in figures]}
    (RESULTS / f"{system}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    table = Table("figure", "value", "unit", "reach", "holds", title=system)
    for figure in figures:
        holds = "" if figure.holds is None else ("yes" if figure.holds else "NO")
        table.add_row(figure.name, f"{figure.value:,.2f}", figure.unit, figure.reach, holds)
    Console().print(table)
    for line in find_falls(system):
        print(line)


def find_falls(system: str) -> list[str]:
    """Return a sentence for each ratio of a system's last run that is much worse than its committed record."""
    figures = [Figure(**each) for each in json.loads((RESULTS / f"{system}.json").read_text())["figures"]]
    return describe_falls(read_committed(system), figures)


def note_cores_of_others(system: str, cores: float) -> None:
    """Write into a record how much other programs used while it was made, and say so where that is too much."""
    path = RESULTS / f"{system}.json"
    document = json.loads(path.read_text())
    document["machine"]["cores_of_others"] = round(cores, 2)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if cores > OTHERS_MAX_CORES:
        print(f"Other programs used {cores:.2f} cores meanwhile: measure {system} again where nothing else runs.")


def build_medians(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Return each figure of the last run with its median over all runs; a reach holds where it does in the median."""
    if len(runs) == 1:
        return list(runs[0])
    merged = []
    for figure in runs[-1]:
        same = sorted((each for run in runs for each in run if each.name == figure.name), key=lambda each: each.value)
        median = same[(len(same) - 1) // 2]
        values = ", ".join(f"{each.value:,.3g}" for each in same)
        merged.append(replace(median, how=f"{median.how}; the middle of {len(same)} runs: {values}"))
    return merged


def describe_falls(before: Mapping[str, float], figures: list[Figure]) -> list[str]:
    """Return a sentence for each ratio that is much worse than it was; a reach with `≤` says that less is better."""
    falls = []
    for figure in figures:
        old = before.get(figure.name)
        if figure.unit != RATIO or not old or not figure.value:
            continue
        change = old / figure.value if figure.reach.startswith("≤") else figure.value / old
        if change < 1 - FALL_MAX:
            falls.append(f"Worse by more than a quarter: {figure.name}: {figure.value:.2f}, recorded {old:.2f}")
    return falls


def read_committed(system: str) -> dict[str, float]:
    """Return the figures of the committed record, so that a bad run does not become the measure of the next."""
    path = f"HEAD:./{system}.json"
    shown = subprocess.run(["git", "show", path], cwd=RESULTS, capture_output=True, check=False)  # noqa: S607
    if shown.returncode:
        return {}
    return {each["name"]: each["value"] for each in json.loads(shown.stdout)["figures"]}
