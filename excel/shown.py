"""Shown: the first cells of a column as Excel shows them, by which its width is fitted."""

from __future__ import annotations

import re
from typing import Final

from excel import html
from excel.columns import DATE_FORMAT, DATETIME_FORMAT, Column
from excel.forms import Form, Values

SAMPLE_ROWS: Final = 200
CHARACTERS: Final = 200
"""No column is as wide as this, so that the rest of a long text need not be kept."""

_LITERAL = re.compile(r'"([^"]*)"|\\(.)|\[[^]]*\]|[_*].')
_DECIMALS = re.compile(r"\.([0#?]+)")


def shown(values: Values, column: Column) -> list[str]:
    """The texts of cells, nothing where they are empty."""
    cells = values.payload.to_pylist()
    return [
        "" if cell is None else _shown(cell, Form(int(form)), column)[:CHARACTERS]
        for cell, form in zip(cells, values.forms, strict=True)
    ]


def _shown(cell: str, form: Form, column: Column) -> str:
    number_format = column.style.number_format
    match form:
        case Form.NUMBER:
            return _number(cell, number_format) if number_format else cell
        case Form.BOOLEAN:
            return "TRUE" if cell == "1" else "FALSE"
        case Form.DAY:
            return number_format or DATE_FORMAT
        case Form.MOMENT:
            return number_format or DATETIME_FORMAT
        case Form.RICH:
            return "".join(run.text for run in html.runs(cell))
        case _:
            return cell


def _number(digits: str, number_format: str) -> str:
    """Nearly what a number looks like in a format: as many digits, and all signs around them."""
    section = number_format.split(";", maxsplit=1)[0]
    codes = _LITERAL.sub("", section)
    if not re.search("[0#?]", codes):
        return digits
    found = _DECIMALS.search(codes)
    decimals = len(found[1]) if found else 0
    number = float(digits) * (100 if "%" in codes else 1)
    grouped = f"{number:,.{decimals}f}" if "," in codes else f"{number:.{decimals}f}"
    around = "".join(first or second for first, second in _LITERAL.findall(section))
    return grouped + around + re.sub("[0#?.,]", "", codes)
