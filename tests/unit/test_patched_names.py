"""Names that tests replace by monkeypatch exist: no type checker reads them, and few runs reach all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "monkeypatch" in path.read_text())


def read_imports(tree: ast.Module) -> Mapping[str, str]:
    """The dotted name behind each imported name."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {name.asname or name.name: f"{module}.{name.name}" for name in names}
            case ast.Import(names=names):
                found |= {name.asname or name.name: name.name for name in names}
    return found


def find_patches(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each patch of a module."""
    imports = read_imports(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr"),
                args=[ast.Name(id=holder), ast.Constant(value=str(name)), *_],
            ) if holder in imports and isinstance(find_object(imports[holder]), ModuleType):
                yield imports[holder], name


def find_object(dotted: str) -> object:
    """The module or the object of a module that a dotted name means."""
    try:
        return import_module(dotted)
    except ModuleNotFoundError:
        module, _, name = dotted.rpartition(".")
        return getattr(import_module(module), name, None)


def test_a_patch_of_a_module_is_found() -> None:
    """By whatever name the module is imported; patches of objects are left to the run."""
    source = (
        'from excel import table_body as heads, workbook\nmonkeypatch.setattr(heads, "CHUNK_ROWS", 2)\n'
        'patch.delattr(workbook, "gone")\nmonkeypatch.setattr(client, "send", None)\n'
    )

    found = list(find_patches(ast.parse(source)))
    assert found == [("excel.table_body", "CHUNK_ROWS"), ("excel.workbook", "gone")]


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_patched_names_exist(path: Path) -> None:
    """Or the test fails only where it is run."""
    patches = find_patches(ast.parse(path.read_text()))

    assert [(module, name) for module, name in patches if not hasattr(find_object(module), name)] == []
