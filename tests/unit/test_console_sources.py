"""The console's sources: small modules that import what exists, say only words that exist, and never make markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import get_args

import pytest

from api import console
from api.overview import import_overviews
from domain.downloads.models import DownloadCause
from domain.orders.slices import SliceCause
from domain.quotas import STREAMS_QUOTA, QuotaLimits
from domain.transfers.models import FailureReason
from systems import SYSTEMS, System

FOLDER = console.FOLDER
SOURCES = sorted(path for path in FOLDER.rglob("*") if path.suffix in {".js", ".css"})
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]
MODULE_MAX_LINES = 400
# Ways to make markup or code of a text; the policy would stop most, and a review should not have to rely on that.
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style"
)
IMPORTS = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""")
NAMED_IMPORTS = re.compile(r"""^(?:import|export) \{([^}]*)\} from ["'](\.[^"']+)["']""", re.MULTILINE)

each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(FOLDER)))


@each_source
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    """It opens with one line of comment, and stays short."""
    lines = path.read_text().splitlines()
    assert re.match(r"// [A-Z`].+\.$|/\* [A-Z].+\. \*/$", lines[0]), lines[0]
    assert len(lines) <= MODULE_MAX_LINES


@each_script
def test_imports_lead_to_files(path: Path) -> None:
    """Nothing is resolved for us: each import names a file."""
    assert [name for name in IMPORTS.findall(path.read_text()) if not (path.parent / name).is_file()] == []


def imported_modules(path: Path) -> set[Path]:
    """The modules that one imports, now or later; comments only speak of some."""
    code = re.sub(r"^\s*(//|/?\*).*$", "", path.read_text(), flags=re.MULTILINE)
    return {(path.parent / name).resolve() for name in IMPORTS.findall(code)}


def find_circle(graph: Mapping[Path, Set[Path]]) -> list[str]:
    """The modules of a circle of imports, if there is any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [path.relative_to(FOLDER).as_posix() for path in error.args[1]]
    return []


def test_modules_import_each_other_in_one_direction() -> None:
    """Who reads a module needs to read only those below it."""
    assert find_circle({path.resolve(): imported_modules(path) for path in SCRIPTS}) == []


def test_a_circle_is_found() -> None:
    """The look at the imports sees what it looks for, through a module between."""
    router, page, link = (FOLDER / name for name in ("router.js", "page.js", "link.js"))

    circle = find_circle({router: {page}, page: {link}, link: {router}})

    assert {*circle} == {"router.js", "page.js", "link.js"}


def is_exported(name: str, text: str) -> bool:
    """Whether a module exports this name, by its declaration or from another module."""
    declared = rf"^export (?:async )?(?:function\*?|class|const|let) {name}\b"
    return bool(re.search(rf"{declared}|^export {{[^}}]*\b{name}\b[^}}]*}}", text, re.MULTILINE))


@each_script
def test_what_is_imported_is_exported(path: Path) -> None:
    """A browser tells of a name that is missing only when it loads the module."""
    wanted = [
        (name.partition(" as ")[0].strip(), path.parent / module)
        for names, module in NAMED_IMPORTS.findall(path.read_text())
        for name in names.split(",")
        if name.strip()
    ]
    assert [name for name, module in wanted if not is_exported(name, module.read_text())] == []


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


def read_word_groups(file: str, name: str) -> list[str]:
    """The texts of a group of words, one for each language; braces in words are in pairs."""
    text, groups = (FOLDER / "js/words" / file).read_text(), []
    for begin in re.finditer(rf"^    {name}: {{", text, re.MULTILINE):
        end, depth = begin.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        groups.append(text[begin.end() : end])
    return groups


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_its_place_in_the_console(system: System) -> None:
    """A section with an icon and pages, and in both languages words for its name, its unit, pause and resume."""
    navigation, router, icons, overview = (
        (FOLDER / "js" / name).read_text() for name in ("navigation.js", "router.js", "icons.js", "pages/overview.js")
    )
    unit = import_overviews()[system].UNIT
    assert f'{{ name: "{system}", href: `${{HOME}}/{system}`' in navigation
    assert f'  {system}: () => import("./pages/{system}.js"),' in router
    assert re.search(rf"^  {system}: ", icons, re.MULTILINE)
    assert re.search(rf'const UNITS = .*\b{system}: "{unit}"', overview)
    names = {"section": system, "pauseText": system, "resumeText": system, "unit": unit}
    for group, name in names.items():
        texts = read_word_groups("common.js" if group == "section" else "overview.js", group)
        assert [bool(re.search(rf"\b{name}: ", text)) for text in texts] == [True, True], group


def test_every_quota_has_its_words() -> None:
    """In both languages."""
    for text in read_word_groups("overview.js", "quotaNames"):
        assert set(re.findall(r"^ +(\w+): ", text, re.MULTILINE)) == {*QuotaLimits.model_fields, STREAMS_QUOTA}


@pytest.mark.parametrize("cause", sorted({*get_args(DownloadCause), *get_args(SliceCause), *FailureReason}))
def test_every_cause_of_a_failure_has_words(cause: str) -> None:
    """In both languages: the overview shows those instead of the code."""
    words = (FOLDER / "js/words/causes.js").read_text()
    assert len(re.findall(rf"^ +{cause}: ", words, re.MULTILINE)) == 2


def test_a_group_of_words_is_read_to_its_end() -> None:
    """Whatever is nested in it."""
    english, chinese = read_word_groups("overview.js", "unit")
    assert "slices: {" in english
    assert "pauseText" not in english + chinese
