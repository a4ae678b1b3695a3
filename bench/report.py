"""Report: the figures of a benchmark as a table for people and a JSON file for programs."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from domain import VERSION

RESULTS = Path(__file__).parent / "results"


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
    """Print the table and write the file."""
    RESULTS.mkdir(exist_ok=True)
    document = {"version": VERSION, "machine": describe_machine(), "figures": [asdict(figure) for figure in figures]}
    (RESULTS / f"{system}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    table = Table("figure", "value", "unit", "reach", "holds", title=system)
    for figure in figures:
        holds = "" if figure.holds is None else ("yes" if figure.holds else "NO")
        table.add_row(figure.name, f"{figure.value:,.2f}", figure.unit, figure.reach, holds)
    Console().print(table)
