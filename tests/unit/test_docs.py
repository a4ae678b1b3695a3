"""What the documents say exists: links, files, make targets, commands, variables, and a current reference."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import typer

from cli.__main__ import app
from tests.support import deploy_files, settings_reference

ROOT = Path(__file__).parent.parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests" / "support" / "README.md"]
COMMANDS = typer.main.get_group(app).commands.keys()
LAYERS = "activities|api|cli|deploy|docs|domain|haulage|infra|sims|tests|workflows"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository, and an anchor that this file has."""
    links = re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text())

    assert [link for link in links if not _resolves(page, link)] == []


@each_page
def test_named_files_exist(page: Path) -> None:
    """A path in back quotes that begins with a folder of the repository exists; SYSTEM is a placeholder."""
    paths = re.findall(rf"`((?:{LAYERS})/[\w./-]*)`", page.read_text())

    assert [path for path in paths if "SYSTEM" not in path and not (ROOT / path).exists()] == []


@each_page
def test_named_tests_exist(page: Path) -> None:
    """A test that was renamed or removed is missed where a page says that it shows something."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text())

    assert [f"{path}::{name}" for path, name in named if name not in _list_tests(path)] == []


@each_page
def test_named_targets_exist(page: Path) -> None:
    """Every `make …` is a target of the Makefile."""
    targets = re.findall(r"^([a-z%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pattern = "|".join(target.replace("%", "[a-z]+") for target in targets)

    named = re.findall(r"(?:^|`|&& )make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert [name for name in named if not re.fullmatch(pattern, name)] == []


@each_page
def test_named_commands_exist(page: Path) -> None:
    """Every `haulage …` is a command."""
    assert set(re.findall(r"`haulage ([a-z]+)", page.read_text())) - COMMANDS == set()


def test_files_that_examples_write_are_ignored_by_git() -> None:
    """As the README says: who tries its commands and those of the tutorials has no new files in `git status`."""
    pages = [ROOT / "README.md", *(ROOT / "docs" / "tutorials").glob("*.md")]
    pattern = re.compile(r"(?:--out|-o|>) +([a-z][a-z-]*\.[a-z]+)\b")
    written = {name for page in pages for name in pattern.findall(page.read_text())}
    ignored = (ROOT / ".gitignore").read_text().splitlines()

    assert {"customers.csv", "squares.txt", "own.csv"} <= written
    assert [name for name in sorted(written) if f"/{name}" not in ignored] == []


@each_page
def test_named_settings_exist(page: Path) -> None:
    """Every HAULAGE_… variable is one that is read."""
    known = {variable.name for variable in settings_reference.variables()}

    assert set(re.findall(r"\bHAULAGE_[A-Z_]+[A-Z]", page.read_text())) - known == set()


def test_the_settings_reference_is_current() -> None:
    """The page is what the tree says today; `python -m tests.support.settings_reference` renews it."""
    assert settings_reference.PAGE.read_text() == settings_reference.markdown()


def test_versions_are_those_of_the_tests() -> None:
    """What the page says that it runs on is what the tests run on."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    images = [each["image"] for each in deploy_files.compose()["services"].values()]
    versions = {
        name: re.search(rf"/?{name}:([\d.]+)", " ".join(images)) for name in ("postgres", "server", "seaweedfs")
    }
    assert [name for name, found in versions.items() if not found or found[1] not in page] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"| Python, server | {project['requires-python'].removeprefix('>=')} |" in page


def test_every_decision_is_listed() -> None:
    """Decisions are numbered without holes, and the index names each."""
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    index = (ROOT / "docs" / "README.md").read_text()

    assert [name[:4] for name in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    assert re.findall(r"\]\(adr/(.+)\)", index) == decisions


def _resolves(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


@cache
def _list_tests(path: str) -> set[str]:
    """The functions and classes of tests of a file; none if there is no such file."""
    if not (ROOT / path).exists():
        return set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, kinds)}


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors that a forge makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
