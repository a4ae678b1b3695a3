"""Checking: whether a table can be drawn as it is asked for, by a request and by a source's first answer alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from pydantic import JsonValue

from excel.template.drawing import TableDrawing
from excel.template.fields import shown, step
from excel.template.reading import TemplateFaults, read_template, says_nothing

PAIRS_MAX: Final = 100
NAME_MAX_CHARACTERS: Final = 200
TEXT_MAX_CHARACTERS: Final = 8_000
TEMPLATE_MAX_CHARACTERS: Final = 100_000

_WANTED_HEADER = "an object of names and values, or an array of such rows"

Path = Callable[[str], str]
"""Where a field of the table stands in what was sent."""


def faults(table: TableDrawing, path: Path = str) -> list[str]:
    """Everything that keeps a table from being drawn, each with its path: `footer[1].签名: …`."""
    found = [*_pairs(table.header, path("header"), _WANTED_HEADER)]
    if isinstance(table.footer, str):
        found += _long(table.footer, path("footer"))
    else:
        found += _pairs(table.footer, path("footer"), f"a text, {_WANTED_HEADER}")
    return found + _of_template(table.template, path("template"))


def template_size_faults(template: JsonValue, at: str) -> list[str]:
    """What keeps a value from being read as a template at all."""
    if says_nothing(template):
        return []
    if not isinstance(template, (dict, list)):
        return [f"{at}: it is neither an object nor an array; send a tree of column heads."]
    length = len(json.dumps(template, ensure_ascii=False))
    if length > TEMPLATE_MAX_CHARACTERS:
        return [f"{at}: it has {length:,} characters; send {TEMPLATE_MAX_CHARACTERS:,} or less."]
    return []


def _of_template(template: JsonValue, at: str) -> list[str]:
    if says_nothing(template):
        return []
    if unreadable := template_size_faults(template, at):
        return unreadable
    try:
        read_template(template, at)
    except TemplateFaults as found:
        return found.faults
    return []


def _pairs(value: JsonValue, at: str, wanted: str) -> Iterator[str]:
    rows: dict[str, JsonValue]
    match value:
        case None | "":
            return
        case dict():
            rows = {at: value}
        case list():
            rows = {f"{at}[{index}]": row for index, row in enumerate(value)}
        case _:
            yield f"{at}: it is {shown(value)}; send {wanted}."
            return
    count = sum(len(row) for row in rows.values() if isinstance(row, dict))
    if count > PAIRS_MAX or len(rows) > PAIRS_MAX:
        yield f"{at}: it has {max(count, len(rows)):,} entries; send {PAIRS_MAX} or less."
        return
    for place, row in rows.items():
        if isinstance(row, dict):
            yield from _row(row, place)
        else:
            yield f"{place}: it is {shown(row)}; send an object of names and values."


def _row(row: dict[str, JsonValue], at: str) -> Iterator[str]:
    for name, value in row.items():
        if len(name) > NAME_MAX_CHARACTERS:
            yield f"{at}: a name has {len(name):,} characters; send {NAME_MAX_CHARACTERS} or less."
        elif isinstance(value, (dict, list)):
            yield f"{at}{step(name)}: it is {shown(value)}; send a text or a number."
        elif isinstance(value, str):
            yield from _long(value, f"{at}{step(name)}")


def _long(text: str, at: str) -> Iterator[str]:
    if len(text) > TEXT_MAX_CHARACTERS:
        yield f"{at}: it has {len(text):,} characters; send {TEXT_MAX_CHARACTERS:,} or less."
