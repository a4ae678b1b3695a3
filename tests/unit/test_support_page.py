"""The pages for those who write tests name every fixture and helper that there is, and none that there is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from systems import SYSTEMS

TESTS = Path(__file__).parents[1]
INDEX = (TESTS / "support" / "README.md").read_text()
GUIDE = (TESTS.parent / "CONTRIBUTING.md").read_text()
DEFINED_IN = (TESTS / "support" / "fixtures.py", TESTS / "faults" / "conftest.py")
OF_PYTEST = {"tmp_path", "monkeypatch", "request"}


def defined_fixtures() -> dict[str, str]:
    """Return what every test may ask for, with the class that it gets."""
    functions = [each for path in DEFINED_IN for each in ast.parse(path.read_text()).body]
    return {
        each.name: ast.unparse(each.returns or ast.Constant(None))
        for each in functions
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(ast.unparse(decorator).startswith("pytest.fixture") for decorator in each.decorator_list)
    }


def tables() -> dict[str, list[list[str]]]:
    """Return the cells of the index's tables, by the head of their first column."""
    found: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", INDEX, re.MULTILINE):
        head, _, *lines = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
        found.setdefault(head[0], []).extend(lines)
    return found


def find_quoted(cell: str) -> list[str]:
    return re.findall(r"`(\w[\w.]*)`", cell)


def test_the_index_lists_all_fixtures() -> None:
    """Each once, under the name that a test asks for."""
    listed = [name for line in tables()["fixture"] for name in find_quoted(line[0])]
    assert sorted(listed) == sorted(defined_fixtures())


def test_the_index_names_the_class_of_each_system() -> None:
    """The class that the fixture gives, with the methods that are said to be most used."""
    classes = {line[0].strip("`"): line for line in tables()["fixture"] if len(line) == 4}
    assert classes.keys() == {*SYSTEMS, "webhooks"}, "each system has a fixture of its name, with its class"
    for fixture, (_, path, stand_in, used) in classes.items():
        module, _, name = path.strip("`").partition(".")
        assert defined_fixtures()[fixture] == f"AsyncIterator[{name}]"
        assert set(find_quoted(stand_in)) <= defined_fixtures().keys()
        [class_] = [
            each
            for each in ast.parse((TESTS / "support" / f"{module}.py").read_text()).body
            if isinstance(each, ast.ClassDef) and each.name == name
        ]
        methods = {each.name for each in class_.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert set(re.findall(r"`(\w+)\b", used)) <= methods, fixture


def test_the_index_lists_all_helpers() -> None:
    """Each module of the folder once, but those that are named as the classes of systems or hold the fixtures."""
    listed = [name for line in tables()["module"] for name in find_quoted(line[0])]
    systems = [line[1].strip("`").partition(".")[0] + ".py" for line in tables()["fixture"] if len(line) == 4]
    there = {path.name for path in (TESTS / "support").glob("*.py")} - {"__init__.py"}
    assert len(listed) == len(set(listed))
    assert set(listed) | set(systems) == there


def test_the_guide_asks_for_fixtures_that_there_are() -> None:
    """Every example that it shows, those that kill included."""
    asked = {name for example in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) for name in _parameters(example)}
    assert {"deployment", "killer", "downloads"} <= asked
    assert asked - OF_PYTEST <= defined_fixtures().keys()


def test_the_guide_s_example_of_a_kill_can_be_loaded() -> None:
    """What it imports is there; the other examples are run by `test_contributing_page.py`."""
    [example] = [each for each in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "killer: Killer" in each]
    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102 - what the page shows is what is tested
    [test] = [each for name, each in names.items() if name.startswith("test_")]
    assert callable(test)


def _parameters(example: str) -> Iterator[str]:
    for each in ast.parse(example).body:
        if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef) and each.name.startswith("test_"):
            yield from (argument.arg for argument in each.args.args)
