"""Shape: how many pieces the server has, and of which size. `make shape` prints the counts and fails beyond the bounds.

A bound is raised only by a decision in `docs/adr/`; it is lowered whenever the tree allows it.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from checks.bounds import Bound, Figure, are_within, render
from checks.tree import LAYERS, Sources, read_sources

LINES_MAX: Final = 400
PACKAGE_FILES_MAX: Final = 15
SMALL_LINES: Final = 60
"""A shorter module that only one other imports belongs into that one."""

FILES: Final = "files of the server"
LINES: Final = "lines of the server"
MEDIAN: Final = "median lines of a module"
LONG: Final = f"modules of more than {LINES_MAX} lines"
CROWDED: Final = f"packages of more than {PACKAGE_FILES_MAX} files and no sub-package"
SMALL: Final = f"modules under {SMALL_LINES} lines that only one other imports"

BOUNDS: Final = {
    FILES: Bound(most=395, target=395),
    LINES: Bound(most=78_000, target=78_000),
    MEDIAN: Bound(least=120, most=250, target_least=120, target=250),
    LONG: Bound(most=0, target=0),
    CROWDED: Bound(most=0, target=0),
    SMALL: Bound(most=0, target=0),
}

CROWDED_BY_INTENT: Final = {
    "stores/migrations/versions": "Alembic reads one file a migration from one folder.",
}
SMALL_BY_INTENT: Final = {
    "handle.py": "Every system has one in workflows/: what the API starts and steers.",
    "queues.py": "Every system has one in workflows/: its part of the worker's table.",
    "overview.py": "Every system has one in api/: what the overview counts of it.",
    "quotas.py": "Every system has one in api/: what a project may use of it.",
    "queries.py": "Every system has one in api/: its routes that read.",
    "actions.py": "Every system has one in api/: its routes that begin, change or end something.",
}
"""Small modules that may have one importer: their place is part of the layout that all systems share."""


def measure(sources: Sources) -> list[Figure]:
    """Return the figures of a server's sources, given by path."""
    modules = {name: text.count("\n") for name, text in sources.items() if not name.endswith("__init__.py")}
    long = sorted((name for name, lines in modules.items() if lines > LINES_MAX), key=lambda name: -modules[name])
    return [
        Figure(FILES, len(sources)),
        Figure(LINES, sum(text.count("\n") for text in sources.values())),
        Figure(MEDIAN, statistics.median(modules.values())),
        Figure(LONG, len(long), [f"{name}: {modules[name]} lines" for name in long]),
        _find_crowded_packages(sources),
        _find_small_modules(sources, modules),
    ]


def _find_crowded_packages(sources: Sources) -> Figure:
    files = Counter(str(PurePosixPath(name).parent) for name in sources)
    holders = {str(PurePosixPath(package).parent) for package in files}
    held = holders | CROWDED_BY_INTENT.keys()
    crowded = [name for name, count in files.most_common() if count > PACKAGE_FILES_MAX and name not in held]
    return Figure(CROWDED, len(crowded), [f"{name}: {files[name]} files" for name in crowded])


def _find_small_modules(sources: Sources, modules: dict[str, int]) -> Figure:
    importers = find_importers(sources)
    small = [
        name
        for name, lines in modules.items()
        if lines < SMALL_LINES and len(importers[name]) == 1 and PurePosixPath(name).name not in SMALL_BY_INTENT
    ]
    return Figure(SMALL, len(small), [f"{name}: {modules[name]} lines, for {min(importers[name])}" for name in small])


def find_importers(sources: Sources) -> dict[str, set[str]]:
    """Return which of the sources import each of them; an `__init__` that imports a module counts as one."""
    paths = {_dotted_name(name): name for name in sources}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, text in sources.items():
        for imported in _iterate_imports(ast.parse(text)):
            if imported in paths and paths[imported] != name:
                importers[paths[imported]].add(name)
    return importers


def _iterate_imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports; of `from a import b` both `a` and `a.b`, as either may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dotted_name(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def main() -> int:
    """Print the figures; return 1 if one is out of bounds."""
    parser = argparse.ArgumentParser(prog="python -m checks.shape", description=main.__doc__)
    parser.add_argument("--list", action="store_true", help="print every place that was counted")
    arguments = parser.parse_args()
    figures = measure(read_sources(*LAYERS))
    print(render(figures, BOUNDS, is_complete=arguments.list))
    return 0 if are_within(figures, BOUNDS) else 1


if __name__ == "__main__":
    sys.exit(main())
