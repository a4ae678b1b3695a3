"""The draw of definitions for the name test."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import names

SOURCE = '''"""A module."""

class Store(Base):
    """Keeps rows."""

    def __init__(self) -> None: ...

    @property
    def size(self) -> int:
        return 1

    class Cursor:
        async def next(self, limit: int = 10) -> Row | None: ...


def load(path):
    def inner(): ...
'''


def test_a_definition_is_drawn_with_its_path_holder_and_signature() -> None:
    """Those in functions, and those that Python names, are not drawn."""
    drawn = {str(each) for each in names.draw({"a.py": SOURCE}, "seed", 5)}

    assert drawn == {
        "a.py: -: class Store(Base)",
        "a.py: -: def load(path)",
        "a.py: Store: @property def size(self) -> int",
        "a.py: Store: class Cursor",
        "a.py: Cursor: async def next(self, limit: int=10) -> Row | None",
    }


def test_a_seed_draws_the_same_again() -> None:
    """Whatever the order in which files were read; another seed draws others."""
    sources = {f"{number}.py": f"def f{number}(): ...\n" for number in range(50)}
    drawn = names.draw(sources, "c79d162", 10)

    assert names.draw(dict(reversed(sources.items())), "c79d162", 10) == drawn
    assert names.draw(sources, "c79d163", 10) != drawn
    assert len(set(drawn)) == 10


def test_the_body_is_what_guesses_are_graded_against() -> None:
    """The whole definition."""
    [load] = [each for each in names.iterate_definitions("a.py", SOURCE) if "load" in each.signature]

    assert load.body == "def load(path):\n    def inner(): ..."


def test_more_than_there_are_cannot_be_drawn() -> None:
    """The message has both numbers."""
    with pytest.raises(ValueError, match=r"6 definitions are to be drawn of 5\."):
        names.draw({"a.py": SOURCE}, "seed", 6)


def test_another_project_is_read_without_its_tests(tmp_path: Path) -> None:
    """Nor with what tools keep in hidden folders."""
    for name in ("lib/jobs.py", "tests/test_jobs.py", ".venv/lib/x.py", "lib/migrations/one.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)

    assert names.read_tree(tmp_path).keys() == {"lib/jobs.py"}
