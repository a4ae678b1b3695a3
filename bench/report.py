"""Figures of a room: a table for people, a JSON file for programs."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One measured figure, and the one to reach where an issue names it."""

    name: str
    value: float
    unit: str
    how: str
    reach: str = ""
    holds: bool | None = None


def machine() -> dict[str, object]:
    """What it was measured on."""
    return {
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def publish(room: str, figures: list[Figure]) -> None:
    """Print the table and write the file."""
    RESULTS.mkdir(exist_ok=True)
    document = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
    (RESULTS / f"{room}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    table = Table("figure", "value", "unit", "reach", "holds", title=room)
    for figure in figures:
        holds = "" if figure.holds is None else ("yes" if figure.holds else "NO")
        table.add_row(figure.name, f"{figure.value:,.2f}", figure.unit, figure.reach, holds)
    Console().print(table)
