"""`python -m tests.release.notes VERSION`: the section of a version in CHANGELOG.md, which its release shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def cut_section(changelog: str, version: str) -> str:
    """Return what is below the heading of a version, without those of other versions; empty where it has none."""
    headings = rf"^## \[?{re.escape(version)}\]?(?: [^\n]*)?\n"
    found = re.search(rf"{headings}(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def main(version: str) -> int:
    """Print the section; return 1 if there is none, or nothing in it."""
    section = cut_section(CHANGELOG.read_text(), version)
    if not section:
        sys.stderr.write(f"CHANGELOG.md says nothing below `## {version}`: write that section first.\n")
        return 1
    sys.stdout.write(f"{section}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
