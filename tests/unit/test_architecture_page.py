"""The page about the layers: its picture is the tree's, and the files and the code that it names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from systems import SYSTEMS
from tests.support import architecture_picture
from tests.support.architecture_picture import ROOT

PAGE = (ROOT / "docs/explanation/architecture.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", PAGE, re.MULTILINE)
FILES = sorted({path for path in re.findall(r"`([a-z_]+/[^`\s]+|[a-z_]+\.py)`", PAGE) if "<" not in path})


def defined_in(path: str) -> Iterator[str]:
    """What a module defines: its functions, classes, constants, and the methods of its classes."""
    for node in ast.parse((ROOT / path).read_text()).body:
        match node:
            case ast.ClassDef():
                yield node.name
                yield from (
                    f"{node.name}.{each.name}"
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


@pytest.mark.parametrize("path", FILES)
def test_files_that_are_named_exist(path: str) -> None:
    """Also folders."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), ROWS)
def test_code_that_is_named_is_there(path: str, name: str) -> None:
    """In the very file that the row names."""
    assert name in set(defined_in(path))


@pytest.mark.parametrize("system", [*SYSTEMS, "webhooks"])
def test_the_way_of_a_request_passes_through_the_packages_of_its_system(system: str) -> None:
    """Each system has a section, and what it names of another system's packages is webhooks alone."""
    sections = [part for part in PAGE.split("\n## ") if part.lower().startswith(f"{system}:")]
    assert len(sections) == 1, f"The page has no chapter `## {system.title()}: …` with the way of one request."
    [section] = sections
    files = [path for path, _ in re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", section, re.MULTILINE)]
    named = {part for path in files for part in path.split("/")[1:2]} & {*SYSTEMS, "webhooks"}
    assert named - {"webhooks"} == {system} - {"webhooks"}
    layers = {path.split("/")[0] for path in files}
    assert layers >= {"api", "workflows", "activities", "stores", "domain"}


def test_the_picture_is_the_tree_s() -> None:
    """Layers, packages and imports; `python -m tests.support.architecture_picture` draws it anew."""
    assert architecture_picture.PICTURE.read_text() == architecture_picture.draw()


def test_the_table_of_files_is_the_tree_s() -> None:
    """Every module of every system in its layer; the same command writes it anew."""
    assert architecture_picture.insert_table(PAGE) == PAGE
    assert "`handle`" in architecture_picture.build_table()
