"""The page for module owners, as programs read it: its example and its tables."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "keep-addresses-in-a-module.md").read_text()


def example() -> str:
    """The module that it shows."""
    return _block("Mount the handler", "python")


def tables(database: str) -> list[str]:
    """The statements that make the tables."""
    return [each for each in _block(f"Tables on {database}", "sql").split(";") if each.strip()]


def _block(heading: str, language: str) -> str:
    _, _, section = PAGE.partition(f"# {heading}\n")
    found = re.search(rf"```{language}\n(.+?)```", section, re.DOTALL)
    assert found, heading
    return found[1]
