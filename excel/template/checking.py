"""Checking: what keeps a table from being drawn as a request or a source's first answer asks, and sheet names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pydantic import JsonValue

from excel.template.fields import TemplateFaults, render_step, render_value
from excel.template.models import TableDrawing
from excel.template.reading import is_empty_template, read_template

PAIRS_MAX: Final = 100
NAME_MAX_CHARACTERS: Final = 200
TEXT_MAX_CHARACTERS: Final = 8_000
TEMPLATE_MAX_CHARACTERS: Final = 100_000

_ALLOWED_HEADER = "an object of names and values, or an array of such rows"

FieldPath = Callable[[str], str]
"""Returns the path of a field of the table in the request."""


def find_table_faults(table: TableDrawing, path: FieldPath = str) -> list[str]:
    """Return everything that keeps a table from being drawn, each with its path: `footer[1].签名: …`."""
    found = [*_find_pair_faults(table.header, path("header"), _ALLOWED_HEADER)]
    if isinstance(table.footer, str):
        found += _find_length_fault(table.footer, path("footer"))
    else:
        found += _find_pair_faults(table.footer, path("footer"), f"a text, {_ALLOWED_HEADER}")
    return found + _find_template_faults(table.template, path("template"))


def find_template_size_faults(template: JsonValue, at: str) -> list[str]:
    """Return what keeps a value from being read as a template at all."""
    if is_empty_template(template):
        return []
    if not isinstance(template, (dict, list)):
        return [f"{at}: it is neither an object nor an array; send a tree of column heads."]
    length = len(json.dumps(template, ensure_ascii=False))
    if length > TEMPLATE_MAX_CHARACTERS:
        return [f"{at}: it has {length:,} characters; send {TEMPLATE_MAX_CHARACTERS:,} or less."]
    return []


def _find_template_faults(template: JsonValue, at: str) -> list[str]:
    if is_empty_template(template):
        return []
    if unreadable := find_template_size_faults(template, at):
        return unreadable
    try:
        read_template(template, at)
    except TemplateFaults as found:
        return found.faults
    return []


def _find_pair_faults(value: JsonValue, at: str, allowed: str) -> Iterator[str]:
    rows: dict[str, JsonValue]
    match value:
        case None | "":
            return
        case dict():
            rows = {at: value}
        case list():
            rows = {f"{at}[{index}]": row for index, row in enumerate(value)}
        case _:
            yield f"{at}: it is {render_value(value)}; send {allowed}."
            return
    count = sum(len(row) for row in rows.values() if isinstance(row, dict))
    if count > PAIRS_MAX or len(rows) > PAIRS_MAX:
        yield f"{at}: it has {max(count, len(rows)):,} entries; send {PAIRS_MAX} or less."
        return
    for place, row in rows.items():
        if isinstance(row, dict):
            yield from _find_row_faults(row, place)
        else:
            yield f"{place}: it is {render_value(row)}; send an object of names and values."


def _find_row_faults(row: dict[str, JsonValue], at: str) -> Iterator[str]:
    for name, value in row.items():
        if len(name) > NAME_MAX_CHARACTERS:
            yield f"{at}: a name has {len(name):,} characters; send {NAME_MAX_CHARACTERS} or less."
        elif isinstance(value, (dict, list)):
            yield f"{at}{render_step(name)}: it is {render_value(value)}; send a text or a number."
        elif isinstance(value, str):
            yield from _find_length_fault(value, f"{at}{render_step(name)}")


def _find_length_fault(text: str, at: str) -> Iterator[str]:
    if len(text) > TEXT_MAX_CHARACTERS:
        yield f"{at}: it has {len(text):,} characters; send {TEXT_MAX_CHARACTERS:,} or less."


SHEET_NAME_MAX_UNITS: Final = 31
_FORBIDDEN_IN_SHEET_NAMES = re.compile(r"[\[\]:*?/\\\x00-\x1f\x7f\ufffe\uffff]")
_RESERVED_SHEET_NAME = "history"


def default_sheet_name(index: int) -> str:
    """Return the name of a sheet that was given none."""
    return f"Sheet{index + 1}"


def find_sheet_name_faults(names: Sequence[str | None]) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the names of a workbook's sheets: the place of each, and a sentence."""
    taken: dict[str, int] = {}
    for index, given in enumerate(names):
        if given is not None and (sentence := _find_name_fault(given)):
            yield index, sentence
            continue
        name = default_sheet_name(index) if given is None else given
        if (other := taken.setdefault(name.casefold(), index)) != index:
            yield index, f"“{name}” is the name of sheet {other + 1}, too; Excel ignores case in names."


def _find_name_fault(name: str) -> str | None:
    units = len(name.encode("utf-16-le")) // 2
    if not 1 <= units <= SHEET_NAME_MAX_UNITS:
        return f"it has {units} characters as Excel counts them; send 1–{SHEET_NAME_MAX_UNITS}."
    if found := _FORBIDDEN_IN_SHEET_NAMES.search(name):
        shown = found[0] if found[0].isprintable() else "a control character"
        return f"“{name}” holds {shown}, which no name of a sheet may; leave out [ ] : * ? / \\ and control characters."
    if name.startswith("'") or name.endswith("'"):
        return f"“{name}” begins or ends with an apostrophe, which no name of a sheet may; leave it out."
    if name.casefold() == _RESERVED_SHEET_NAME:
        return f"“{name}” is a name that Excel keeps for itself; choose another."
    return None
