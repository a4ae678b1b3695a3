"""The check of the server's shape, on planted trees."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import PurePosixPath

import pytest

from checks import shape
from checks.bounds import Bound, Figure, are_within, render
from checks.tree import LAYERS, ROOT, read_sources

DECISION = ROOT / "docs" / "adr" / "0020-bounds-of-files-and-lines.md"
SHORT = "X = 1\n"
LONG = "X = 1\n" * 401


def measure_value(name: str, sources: dict[str, str]) -> tuple[float, list[str]]:
    """One figure of a tree, and its places."""
    [figure] = [each for each in shape.measure(sources) if each.name == name]
    return figure.value, list(figure.places)


def test_files_and_lines_are_counted() -> None:
    """The files with each `__init__`; the median without, as those are empty by habit."""
    sources = {"api/__init__.py": "\n", "api/a.py": SHORT * 3, "api/b.py": SHORT * 100, "worker.py": SHORT * 50}

    assert measure_value(shape.FILES, sources)[0] == 4
    assert measure_value(shape.LINES, sources)[0] == 154
    assert measure_value(shape.MEDIAN, sources)[0] == 50


def test_a_long_module_is_found() -> None:
    """At one line more than is allowed."""
    sources = {"api/a.py": LONG, "api/b.py": SHORT * 400}

    assert measure_value(shape.LONG, sources) == (1, ["api/a.py: 401 lines"])


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param(
            {f"api/orders/m{number}.py": SHORT for number in range(16)}, ["api/orders: 16 files"], id="sixteen"
        ),
        pytest.param({f"api/orders/m{number}.py": SHORT for number in range(15)}, [], id="fifteen"),
        pytest.param(
            {f"api/m{number}.py": SHORT for number in range(16)} | {"api/orders/m.py": SHORT},
            [],
            id="with a sub-package",
        ),
        pytest.param({f"stores/migrations/versions/m{number}.py": SHORT for number in range(16)}, [], id="migrations"),
    ],
)
def test_a_crowded_package_is_found(sources: dict[str, str], expected: list[str]) -> None:
    """One with more than fifteen files that is not divided."""
    assert measure_value(shape.CROWDED, sources) == (len(expected), expected)


@pytest.mark.parametrize(
    "statement",
    ["from api import small", "from api.small import X", "import api.small", "def f():\n    from api.small import X"],
)
def test_a_small_module_with_one_importer_is_found(statement: str) -> None:
    """In whatever way it is imported."""
    sources = {"api/small.py": SHORT, "api/user.py": f"{statement}\n"}

    assert measure_value(shape.SMALL, sources) == (1, ["api/small.py: 1 lines, for api/user.py"])


@pytest.mark.parametrize(
    ("module", "text", "users"),
    [
        pytest.param("api/small.py", SHORT, ["api/user.py", "api/other.py"], id="two importers"),
        pytest.param("api/small.py", SHORT * 60, ["api/user.py"], id="sixty lines"),
        pytest.param("workflows/orders/queues.py", SHORT, ["worker.py"], id="a name that every system has"),
        pytest.param("api/small/__init__.py", SHORT, ["api/user.py"], id="package"),
    ],
)
def test_other_small_modules_are_not(module: str, text: str, users: list[str]) -> None:
    """What two share, what is long enough, and what the layout asks for."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    sources = {module: text} | dict.fromkeys(users, f"import {dotted}\n")

    assert measure_value(shape.SMALL, sources) == (0, [])


@pytest.mark.parametrize(("value", "is_within"), [(99, False), (100, True), (200, True), (201, False)])
def test_a_figure_is_held_to_its_bound(value: float, is_within: bool) -> None:
    """On both sides; what is out of bounds is printed with its places."""
    bounds = {"lines": Bound(least=100, most=200, target_least=120, target=150)}
    figures = [Figure("lines", value, ["a.py"])]

    assert are_within(figures, bounds) is is_within
    assert ("OUT OF BOUNDS" in render(figures, bounds)) is ("a.py" in render(figures, bounds)) is not is_within
    assert "bound 100 to 200, target 120 to 150" in render(figures, bounds)
    assert "a.py" in render(figures, bounds, is_complete=True)


def test_pages_name_the_bounds() -> None:
    """The decision and its line in the index: files exactly, lines rounded up to a thousand."""
    lines = math.ceil(shape.BOUNDS[shape.LINES].most / 1_000) * 1_000
    named = f"{shape.BOUNDS[shape.FILES].most} files and {lines:,} lines"

    assert named in DECISION.read_text()
    assert named in (ROOT / "docs" / "README.md").read_text()


def test_the_decision_names_every_large_package() -> None:
    """Those with a sub-package, which no bound holds."""
    sources = read_sources(*LAYERS)
    files = Counter(str(PurePosixPath(name).parent) for name in sources)
    large = [name for name, count in files.items() if count > shape.PACKAGE_FILES_MAX]

    assert large
    assert [name for name in large if f"`{name}`" not in DECISION.read_text()] == []


def test_every_figure_has_a_bound() -> None:
    """Otherwise it would hold nothing."""
    assert {figure.name for figure in shape.measure({"api/a.py": SHORT})} == shape.BOUNDS.keys()
