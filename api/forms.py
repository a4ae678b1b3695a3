"""Forms: a field that may be written in more than one way, told apart by what was sent."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Tag

# No text of a caller that gets as far as its model holds a NUL, so a step that does is ours.
_MARK = "\x00"
_STEP = re.compile(f"{_MARK}([0-9])")


def form(index: int) -> str:
    """The name of a union's form, by its place in the union."""
    return f"{_MARK}{index}"


def tag(index: int) -> Tag:
    """Marks a form of a union with its place in it."""
    return Tag(form(index))


def index_of(step: str | int) -> int | None:
    """Which form a step of an error's location stands for; None for what the caller wrote."""
    found = None if isinstance(step, int) else _STEP.fullmatch(step)
    return int(found[1]) if found else None


def one_or_many(value: Any) -> str:
    """The first form for a value, the second for an array of such values."""
    return form(1) if isinstance(value, list) else form(0)
