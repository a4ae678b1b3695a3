"""Tree: the files of the repository, by what they are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
LAYERS = (
    "api",
    "workflows",
    "activities",
    "services",
    "systems",
    "stores",
    "clients",
    "infra",
    "domain",
    "excel",
    "dev",
    "cli",
    "worker.py",
)
"""What the server is made of."""

Sources: TypeAlias = dict[str, str]
"""The text of each file by its path from the root."""


def read_sources(*paths: str, suffix: str = ".py", root: Path = ROOT) -> Sources:
    """Read the files below these paths that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z", *paths], cwd=root, capture_output=True, check=True)  # noqa: S607
    names = [name for name in listed.stdout.decode().split("\0") if name.endswith(suffix)]
    return {name: (root / name).read_text(encoding="utf-8") for name in sorted(names) if (root / name).is_file()}
