"""Names: draw definitions by a seed, so that a reader can guess from their signatures what they do.

Show a reader the lines that this prints, and have the guesses graded against what it prints with `--bodies`.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from checks.tree import LAYERS, ROOT, Sources, read_sources

SKIPPED_FOLDERS: Final = frozenset(
    {"tests", "test", "bench", "docs", "examples", "demos", "migrations", "versions", "build"}
)
SHOWN_DECORATORS: Final = frozenset({"property", "cached_property", "classmethod", "staticmethod"})

DefinitionNode: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """A class, function or method as a reader without its body sees it, and its body."""

    path: str
    holder: str
    """The class that it is in; `-` at the top of a module."""
    signature: str
    body: str

    def __str__(self) -> str:
        return f"{self.path}: {self.holder}: {self.signature}"


def draw(sources: Sources, seed: str, count: int) -> list[Definition]:
    """Return `count` definitions of the sources; the same for the same sources and seed.

    Raises:
        ValueError: There are fewer definitions.
    """
    definitions = [each for path in sorted(sources) for each in iterate_definitions(path, sources[path])]
    if count > len(definitions):
        raise ValueError(f"{count} definitions are to be drawn of {len(definitions)}. Draw fewer.")
    return random.Random(seed).sample(definitions, count)


def iterate_definitions(path: str, source: str) -> Iterator[Definition]:
    """Yield the definitions of a module and of its classes, but not special methods such as `__init__`."""
    tree = ast.parse(source)
    holders: list[tuple[str, ast.Module | ast.ClassDef]] = [("-", tree)]
    while holders:
        holder, within = holders.pop(0)
        for node in within.body:
            if isinstance(node, ast.ClassDef):
                holders.append((node.name, node))
            if isinstance(node, DefinitionNode) and not node.name.startswith("__"):
                yield Definition(path, holder, _render_signature(node), ast.get_source_segment(source, node) or "")


def _render_signature(node: DefinitionNode) -> str:
    match node:
        case ast.ClassDef():
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            return f"class {node.name}({bases})" if bases else f"class {node.name}"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list} & SHOWN_DECORATORS
            shown = "".join(f"@{decorator} " for decorator in sorted(decorators))
            return f"{shown}{keyword} {node.name}({ast.unparse(node.args)}){returns}"


def read_tree(root: Path) -> Sources:
    """Read the Python modules below a folder that are neither tests, migrations nor documents."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items() if not _is_skipped(Path(name))}


def _is_skipped(path: Path) -> bool:
    return any(part in SKIPPED_FOLDERS or part.startswith(".") for part in path.parts[:-1])


def main() -> int:
    """Print definitions drawn by a seed as `path: holder: signature`."""
    parser = argparse.ArgumentParser(prog="python -m checks.names", description=main.__doc__)
    parser.add_argument("seed", help="any text, for example the id of a commit")
    parser.add_argument("count", type=int, help="how many")
    parser.add_argument("tree", nargs="?", type=Path, help="a folder of Python modules; by default the server")
    parser.add_argument("--bodies", action="store_true", help="print the source of each definition below it")
    arguments = parser.parse_args()
    sources = read_tree(arguments.tree) if arguments.tree else read_sources(*LAYERS, root=ROOT)
    sources = {name: text for name, text in sources.items() if not _is_skipped(Path(name))}
    for definition in draw(sources, arguments.seed, arguments.count):
        print(definition)
        if arguments.bodies:
            print("", *(f"    {line}" for line in definition.body.splitlines()), "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
