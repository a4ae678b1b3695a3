"""The picture of the layers and the table of their files, from the tree.

`python -m tests.support.architecture_picture` renews both.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from systems import SYSTEMS

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs/images/architecture.svg"
PAGE: Final = ROOT / "docs/explanation/architecture.md"
TABLE_BEGINS, TABLE_ENDS = "<!-- files: begin -->\n", "<!-- files: end -->\n"
TABLE_LAYERS: Final = ("api", "workflows", "activities", "stores", "domain")
COLUMNS: Final = (*SYSTEMS, "webhooks")
WHAT: Final = {
    "cli": "the command line",
    "demo": "each system at real work",
    "dev": "everything on one machine",
    "api": "HTTP, console",
    "worker": "which queue serves what",
    "workflows": "what happens, in which order",
    "activities": "steps, each safe to repeat",
    "services": "what a process is made of",
    "stores": "tables and data access",
    "clients": "outside systems",
    "infra": "engine, database, store, limits",
    "domain": "rules and models, no I/O",
    "systems": "the list of systems",
    "excel": "the workbook engine",
}
_LABEL, _CELL, _SHARED, _IMPORTS, _GAP, _ROW, _TOP = 190, 92, 190, 200, 6, 62, 40
_WIDTH: Final = _LABEL + len(COLUMNS) * _CELL + _SHARED + _IMPORTS


@dataclass
class Layer:
    """One layer, as its files are."""

    name: str
    cells: dict[str, list[str]] = field(default_factory=dict)
    """By system: its packages, or its one module, in this layer."""
    shared: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)


def read_order() -> list[str]:
    """The layers from the top, as the contract of imports has them; the worker beside the API."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(each["layers"] for each in contracts if each["type"] == "layers")
    names = [name.strip() for row in rows for name in row.split("|")]
    names.insert(names.index("api") + 1, "worker")
    return names


def read_layers() -> list[Layer]:
    """Every layer with its packages, and the layers that its files import."""
    order = read_order()
    users = _find_users_of_clients()
    return [_read_layer(name, order, users) for name in order]


def draw() -> str:
    """The picture as SVG."""
    layers = read_layers()
    height = _TOP + len(layers) * _ROW + 34
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *(_text(_x(place) + _CELL / 2, 24, name, "middle", bold=True) for place, name in enumerate(COLUMNS)),
        _text(_x(len(COLUMNS)) + 8, 24, "shared", bold=True),
        _text(_WIDTH - _IMPORTS, 24, "imports", bold=True),
    ]
    rows = [line for number, layer in enumerate(layers) for line in _draw_row(layer, _TOP + number * _ROW)]
    foot = _text(12, height - 12, "A layer imports only layers below it; a system never imports another.", size=12)
    return "\n".join([*head, *rows, foot, "</svg>", ""])


def _draw_row(layer: Layer, top: int) -> Iterator[str]:
    box = _ROW - _GAP
    yield f'<rect x="6" y="{top}" width="{_WIDTH - 12}" height="{box}" rx="6" fill="#eef2f7"/>'
    yield _text(16, top + 26, "worker.py" if layer.name == "worker" else f"{layer.name}/", bold=True, size=15)
    yield _text(16, top + 45, WHAT[layer.name], size=11)
    for place, system in enumerate(COLUMNS):
        if packages := layer.cells.get(system):
            x, width = _x(place) + 3, _CELL - 6
            yield f'<rect x="{x}" y="{top + 8}" width="{width}" height="{box - 16}" rx="4" fill="#c7d9f1"/>'
            middle = top + box / 2 + 4 - 7 * (len(packages) - 1)
            for line, name in enumerate(packages):
                yield _text(x + width / 2, middle + 14 * line, name, "middle", size=11)
    for line, words in enumerate(textwrap.wrap(", ".join(layer.shared), 28)[:4]):
        yield _text(_x(len(COLUMNS)) + 8, top + 17 + 13 * line, words, size=11)
    for line, words in enumerate(textwrap.wrap(" ".join(layer.imports), 29)):
        yield _text(_WIDTH - _IMPORTS, top + 17 + 13 * line, words, size=11)


def _x(place: int) -> int:
    return _LABEL + place * _CELL


def _text(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False, size: int = 13) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="#1b2733"{weight}>'
        f"{escape(words)}</text>"
    )


def _read_layer(name: str, order: list[str], users: dict[str, set[str]]) -> Layer:
    imported = {target.partition(".")[0] for path in _files(name) for target in _imports(path)}
    layer = Layer(name, imports=[each for each in order if each in imported - {name}])
    if name == "worker":
        return layer
    packages = {path.parent.name for path in (ROOT / name).glob("*/__init__.py")}
    for module in sorted(packages | {path.stem for path in (ROOT / name).glob("*.py")}):
        owners = {module} if module in COLUMNS else users.get(module, set()) if name == "clients" else set()
        if len(owners) == 1:
            [owner] = owners
            layer.cells.setdefault(owner, []).append(module)
        elif module in packages:
            layer.shared.append(f"{module}/")
    return layer


def _find_users_of_clients() -> dict[str, set[str]]:
    """For each package of clients, the systems whose steps call it."""
    users: dict[str, set[str]] = {}
    for system in COLUMNS:
        for path in _files(f"activities/{system}"):
            for target in _imports(path):
                if target.startswith("clients."):
                    users.setdefault(target.split(".")[1], set()).add(system)
    return users


def _files(name: str) -> Iterable[Path]:
    module = ROOT / f"{name}.py"
    return [module] if module.exists() else sorted((ROOT / name).rglob("*.py"))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Import():
                yield from (alias.name for alias in node.names)


def build_table() -> str:
    """Return the table of file names by layer; the first column has the names that every system has."""
    lines = [f"| layer | every system | {' | '.join(COLUMNS)} |", "|" + "---|" * (len(COLUMNS) + 2)]
    for layer in TABLE_LAYERS:
        names = {system: _list_modules(layer, system) for system in COLUMNS}
        common = set.intersection(*(names[system] for system in SYSTEMS))
        cells = [common, *(names[system] - common for system in COLUMNS)]
        shown = [" ".join(f"`{name}`" for name in sorted(cell)) for cell in cells]
        lines.append(f"| {layer} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _list_modules(layer: str, system: str) -> set[str]:
    """Return the names of a system's modules and packages in a layer; none where it has one module of its own name."""
    found = {path.name.removesuffix(".py") for path in (ROOT / layer / system).glob("*") if path.name[0].isalpha()}
    return {name for name in found if "." not in name}


def insert_table(page: str) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = page.partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    return f"{before}{TABLE_BEGINS}{build_table()}{TABLE_ENDS}{after}"


if __name__ == "__main__":
    PICTURE.write_text(draw())
    PAGE.write_text(insert_table(PAGE.read_text()))
    sys.stdout.write(f"wrote {PICTURE.relative_to(ROOT)}\n")
