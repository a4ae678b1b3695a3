"""A defect that breaks one promise, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """A text that is in a file once, and its replacement."""

    file: str
    text: str
    planted: str


@dataclass(frozen=True)
class Defect:
    """One change of one file, or of several where each alone is caught by the other.

    Args:
        name: Says what goes wrong.
        system: Whose promise it breaks; `shared` where it is everybody's, `tests` where the suite itself is broken.
        text: Is in the file once.
        planted: The replacement.
        tests: Arguments of pytest: the part of the suite that should notice.
        also: What else is changed.
    """

    name: str
    system: str
    file: str
    text: str
    planted: str
    tests: tuple[str, ...]
    also: tuple[Change, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """All that is changed."""
        return (Change(self.file, self.text, self.planted), *self.also)
