"""The console's sources: small modules that import what exists, say only words that exist, and never make markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.console import files

FOLDER = files.FOLDER
SOURCES = sorted(path for path in FOLDER.rglob("*") if path.suffix in {".js", ".css"})
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]
MODULE_MAX_LINES = 400
# Ways to make markup or code of a text; the policy would stop most, and a review should not have to rely on that.
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style"
)
IMPORTS = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""")

each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(FOLDER)))


@each_source
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    """It opens with one line of comment, and ends before anybody loses the thread."""
    lines = path.read_text().splitlines()
    assert re.match(r"// [A-Z`].+\.$|/\* [A-Z].+\. \*/$", lines[0]), lines[0]
    assert len(lines) <= MODULE_MAX_LINES


@each_script
def test_imports_lead_to_files(path: Path) -> None:
    """Nothing is resolved for us: each import names a file."""
    assert [name for name in IMPORTS.findall(path.read_text()) if not (path.parent / name).is_file()] == []


@each_script
def test_text_never_becomes_markup_or_code(path: Path) -> None:
    """What users and other systems wrote enters the page as text."""
    assert MARKUP.findall(path.read_text()) == []


@pytest.mark.parametrize(
    "script", ["el.innerHTML = text", 'el.setAttribute("style", text)', "eval(text)", "new Function(text)"]
)
def test_markup_is_recognised(script: str) -> None:
    """The look at the sources sees what it looks for."""
    assert MARKUP.search(script)
