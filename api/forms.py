"""Forms: a field that may be written in more than one way, told apart by what was sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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


@dataclass(frozen=True)
class Told(Discriminator):
    """Tells the forms of a union apart; a value may fit several of them, so the document says `anyOf`."""

    discriminator: Callable[[Any], str]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": schema.pop("oneOf"), **schema}


def one_or_many(value: Any) -> str:
    """The first form for a value, the second for an array of such values."""
    return form(1) if isinstance(value, list) else form(0)
