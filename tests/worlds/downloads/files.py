"""Files as another program reads them: rows as texts that can be compared with the truth."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from typing import Any

import openpyxl
import pyarrow.parquet as pq

from tests.worlds.downloads import rows
from tests.worlds.downloads.world import DRAWN, TITLES, DownloadWorld

_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")


def read(world: DownloadWorld, content: bytes) -> list[str]:
    """The rows of a finished file, table after table; a sentence in their place where it cannot be read."""
    try:
        return _read(world, content)
    except Exception as error:  # noqa: BLE001 - each reader has errors of its own for a file that is damaged
        return [f"the file cannot be read: {error!r}"]


def _read(world: DownloadWorld, content: bytes) -> list[str]:
    match world.options["type"]:
        case "parquet":
            return _read_parquet(content)
        case "excel":
            return _read_drawn_book(content) if world.is_drawn else _read_excel(content)
        case _:
            return _read_csv(content, str(world.options["encoding"]))


def _read_csv(content: bytes, encoding: str) -> list[str]:
    text = content.decode("utf-8-sig" if encoding == "utf-8-bom" else encoding)
    heads, *lines = [*csv.reader(io.StringIO(text, newline=""))] or [[]]
    return rows.build_table(heads, lines)


def _read_parquet(content: bytes) -> list[str]:
    table = pq.read_table(io.BytesIO(content))
    return [rows.normalize_row({key: _to_text(value) for key, value in row.items()}) for row in table.to_pylist()]


def _read_excel(content: bytes) -> list[str]:
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    found: list[str] = []
    for sheet in book.worksheets:
        heads, *lines = [[_to_text(value) for value in line] for line in sheet.iter_rows(values_only=True)] or [[]]
        found += rows.build_table(heads, lines)
    return found


def _read_drawn_book(content: bytes) -> list[str]:
    """The rows between the heads of the template and the footer, of each sheet."""
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    found: list[str] = []
    for sheet in book.worksheets:
        lines = [[_to_text(value) for value in line] for line in sheet.iter_rows(values_only=True)]
        titles = list(TITLES.values())
        at = next(at for at, line in enumerate(lines) if line[: len(titles)] == titles)
        table = [line[: len(titles)] for line in lines[at + 1 :]]
        above = [cell for line in lines[:at] for cell in line]
        told = [text for text in (DRAWN["title"], "a world") if text not in above]
        told += [] if any(line[0] == DRAWN["footer"] for line in table) else ["the footer"]
        found += [f"{text!r} is not there" for text in told]
        rows_of_table = [line for line in table if line[0] != DRAWN["footer"] and any(line)]
        found += rows.build_table(list(TITLES), rows_of_table)
    return found


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return str(Decimal(repr(value)))
        case str():
            return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)
        case _:
            return str(value)
