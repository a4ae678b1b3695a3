"""Report: the figures of a benchmark as a table for people and a JSON file for programs."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from domain import VERSION

RESULTS = Path(__file__).parent / "results"
RATIO = "×"
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


def publish(system: str, figures: list[Figure]) -> None:
    """Print the table and what is much worse than the committed record, and write the file."""
    RESULTS.mkdir(exist_ok=True)
    document = {"version": VERSION, "machine": describe_machine(), "figures": [asdict(figure) for figure in figures]}
    (RESULTS / f"{system}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    table = Table("figure", "value", "unit", "reach", "holds", title=system)
    for figure in figures:
        holds = "" if figure.holds is None else ("yes" if figure.holds else "NO")
        table.add_row(figure.name, f"{figure.value:,.2f}", figure.unit, figure.reach, holds)
    Console().print(table)
    for line in describe_falls(_read_committed(system), figures):
        print(line)


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


def _read_committed(system: str) -> dict[str, float]:
    """Return the figures of the committed record, so that a bad run does not become the measure of the next."""
    path = f"HEAD:./{system}.json"
    shown = subprocess.run(["git", "show", path], cwd=RESULTS, capture_output=True, check=False)  # noqa: S607
    if shown.returncode:
        return {}
    return {each["name"]: each["value"] for each in json.loads(shown.stdout)["figures"]}
