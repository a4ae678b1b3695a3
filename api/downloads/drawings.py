"""Drawings: what a request says of how its book looks, put together, and told where it cannot be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from api.downloads.excel import Looks
from api.http.problems import FieldProblem
from excel.template.models import Drawing, TableArrangement, TableDrawing
from excel.template.reading import is_empty_template

DRAWING_MAX_CHARACTERS = 200_000
REGIONS = ("title", "summary", "header", "footer", "template")

# A path may quote a key, which may hold anything.
_FAULT = re.compile(r"(?P<path>(?:“.*?”|[^“])*?): (?P<message>.*)", re.DOTALL)


def table(regions: dict[str, Any], sheet: str | None = None) -> TableDrawing:
    """The regions of one table, without those that say nothing."""
    said = {region: regions[region] for region in REGIONS if not is_empty_template(regions[region])}
    return TableDrawing(sheet=sheet, **said)


def book(looks: Looks, tables: list[TableDrawing], multi: TableArrangement = TableArrangement.TAB) -> Drawing:
    """How a book of these tables looks."""
    return Drawing(
        tables=tables,
        multi=multi,
        width=looks.default_width,
        height=looks.default_height,
        align=looks.col_align,
        freeze=looks.freeze,
        filter=looks.filter,
    )


def told(faults: Iterable[str]) -> Iterator[FieldProblem]:
    """Faults as the domain tells them, each once."""
    for fault in dict.fromkeys(faults):
        if found := _FAULT.fullmatch(fault):
            yield FieldProblem(path=found["path"], message=found["message"])


def too_long(drawing: Drawing) -> Iterator[FieldProblem]:
    """Drawings travel with the order, so all of one has a bound beyond those of its parts."""
    length = len(drawing.model_dump_json())
    if length > DRAWING_MAX_CHARACTERS:
        message = (
            f"its titles, summaries, headers, footers and templates have {length:,} characters, those for all tables "
            f"once for each; send {DRAWING_MAX_CHARACTERS:,} or less."
        )
        yield FieldProblem(path="", message=message)
