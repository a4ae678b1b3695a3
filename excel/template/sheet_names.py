"""Sheet names: what Excel takes for one, and the name that a sheet without one gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

NAME_MAX_UNITS: Final = 31
_FORBIDDEN = re.compile(r"[\[\]:*?/\\\x00-\x1f\x7f\ufffe\uffff]")
_RESERVED = "history"


def default(index: int) -> str:
    """The name of a sheet that was given none."""
    return f"Sheet{index + 1}"


def faults(names: Sequence[str | None]) -> Iterator[tuple[int, str]]:
    """What is wrong with the names of a book's sheets: the place of each, and the sentence."""
    taken: dict[str, int] = {}
    for index, given in enumerate(names):
        if given is not None and (sentence := _fault(given)):
            yield index, sentence
            continue
        name = default(index) if given is None else given
        if (other := taken.setdefault(name.casefold(), index)) != index:
            yield index, f"“{name}” is the name of sheet {other + 1}, too; Excel tells names apart by more than case."


def _fault(name: str) -> str | None:
    units = len(name.encode("utf-16-le")) // 2
    if not 1 <= units <= NAME_MAX_UNITS:
        return f"it has {units} characters as Excel counts them; send 1–{NAME_MAX_UNITS}."
    if found := _FORBIDDEN.search(name):
        shown = found[0] if found[0].isprintable() else "a control character"
        return f"“{name}” holds {shown}, which no name of a sheet may; leave out [ ] : * ? / \\ and control characters."
    if name.startswith("'") or name.endswith("'"):
        return f"“{name}” begins or ends with an apostrophe, which no name of a sheet may; leave it out."
    if name.casefold() == _RESERVED:
        return f"“{name}” is a name that Excel keeps for itself; choose another."
    return None
