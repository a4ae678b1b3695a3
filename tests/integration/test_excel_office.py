"""Workbooks in LibreOffice: it opens them, and reads in them what it reads in xlsxwriter's."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench import soffice
from excel.template.models import TablesOnOneSheetOrTabs, TableTextsAndTemplate, WorkbookLayout
from excel.workbook import Workbook
from tests.books import cases, ours, reference
from tests.support.requirements import LIBREOFFICE


@pytest.fixture(autouse=True)
def _find_office() -> None:
    """Everything here needs LibreOffice."""
    LIBREOFFICE.require()


BOOKS = 30
FIRST_SEED = 10_000
FIRST_YEAR = 2001
"""LibreOffice cuts seconds off where it should round. Earlier moments lose one in some cells, in xlsxwriter's books as
in ours, but not in the same cells."""


@pytest.mark.long
def test_libreoffice_sees_the_cells_that_xlsxwriter_alone_would_write(tmp_path: Path) -> None:
    """Every sheet of random books, as CSV: the same from ours and from the plain writer's."""
    seen = {}
    for writer in (ours, reference):
        books = []
        folder = tmp_path / writer.__name__
        folder.mkdir()
        for seed in range(FIRST_SEED, FIRST_SEED + BOOKS):
            books.append(folder / f"{seed}.xlsx")
            writer.write(cases.case(seed, FIRST_YEAR), books[-1])
        made = soffice.convert(books, soffice.CSV_OF_EACH_SHEET, folder / "csv")
        seen[writer] = {path.name: path.read_text() for path in made}

    assert len(seen[ours]) >= BOOKS
    assert seen[ours] == seen[reference]


def test_libreoffice_computes_formulas(tmp_path: Path) -> None:
    """It showed 0 for each: it takes the value that a book has, and computes only where there is none."""
    keys = ["n", "f"]
    drawing = TableTextsAndTemplate(template=[{"name": "n"}, {"name": "f", "type": "formula"}])
    book = Workbook(WorkbookLayout(tables=[drawing]), time_zone="UTC")
    numbers, formulas = [b"20", b"1", b"2", b"3"], ["=A2+1", "=SUM(A2:A3)", '=CONCATENATE("a", A4)', "no formula"]
    rows = zip(numbers, [json.dumps(formula).encode() for formula in formulas], strict=True)
    columns = [pa.array(cells, pa.binary()) for cells in zip(*rows, strict=True)]
    book.begin_table(drawing, keys).add(pa.record_batch(columns, names=keys))
    path = tmp_path / "formulas.xlsx"
    with path.open("wb") as out:
        book.finish(out.write)

    [seen] = soffice.convert([path], soffice.CSV_OF_EACH_SHEET, tmp_path / "csv")
    cells = list(csv.reader(seen.read_text().splitlines()))
    assert cells == [["n", "f"], ["20", "21"], ["1", "21"], ["2", "a2"], ["3", "no formula"]]


WORD = re.compile(r'yMin="([0-9.]+)" xMax="[0-9.]+" yMax="([0-9.]+)">([^<]+)<')
LONG = [f"w{number}" for number in range(30)]
TABLES: list[tuple[Any, list[dict[str, Any]]]] = [
    (
        [{"name": "a", "title": "A\nA2"}, {"name": "b", "title": "B"}, {"name": "c", "width": 16, "wrap": True}],
        [
            {"a": "a0\na1\na2", "b": "b0", "c": "c0"},
            {"a": "a3\r\na4\r\na5\r\na6", "b": "b1", "c": "c1"},
            {"a": "甲一\n甲二\n甲三", "b": "b2\nb3", "c": None},
            {"a": "a7", "b": "b4", "c": " ".join(LONG)},
            {"a": "a8", "b": 7, "c": "c2"},
        ],
    ),
    (
        {
            "col": [{"name": "v", "title": "V"}],
            "row": [
                {
                    "title": "h0\nh1\nh2\nh3\nh4",
                    "children": [{"name": "x", "title": "x0"}, {"name": "y", "title": "y0"}],
                },
                {"name": "z", "title": "z0\nz1"},
                {"name": "last", "title": "z2"},
            ],
        },
        [
            {"v": "v0", "_row_head_": "x"},
            {"v": "v1\nv2\nv3", "_row_head_": "y"},
            {"v": "v4", "_row_head_": "z"},
            {"v": "v5", "_row_head_": "last"},
        ],
    ),
    (None, [{"k": "k0\nk1"}, {"k": "k2"}]),
]
COLUMNS: list[list[list[str]]] = [
    [["A", "A2"], ["a0", "a1", "a2"], ["a3", "a4", "a5", "a6"], ["甲一", "甲二", "甲三"], ["a7"], ["a8"]],
    [["B"], ["b0"], ["b1"], ["b2", "b3"], ["b4"], ["7"]],
    [["c0"], ["c1"], LONG, ["c2"]],
    [["h0", "h1", "h2", "h3", "h4"], ["z0", "z1"], ["z2"]],
    [["x0"], ["y0"], ["z0", "z1"]],
    [["v0"], ["v1", "v2", "v3"], ["v4"], ["v5"]],
    [["k0", "k1"], ["k2"]],
]
"""The words of each column, cell by cell from top to bottom."""


def test_libreoffice_draws_every_line_inside_its_cell(tmp_path: Path) -> None:
    """Of texts with line breaks and of texts that wrap, in several tables of one page, under row heads, too."""
    places = _list_places(tmp_path)

    line = places["a1"] - places["a0"]
    assert line > 0
    assert places["w29"] > places["w0"] + line
    for column in COLUMNS:
        for upper, lower in pairwise(column):
            lowest, highest = max(places[word] for word in upper), min(places[word] for word in lower)
            assert highest - lowest > 0.95 * line, f"{lower} is drawn over {upper}"


def _list_places(folder: Path) -> dict[str, float]:
    """How far down its page LibreOffice draws the middle of each word."""
    drawings = [TableTextsAndTemplate(template=template) for template, _ in TABLES]
    book = Workbook(WorkbookLayout(tables=drawings, multi=TablesOnOneSheetOrTabs.PAGE), time_zone="UTC")
    for drawing, (_, rows) in zip(drawings, TABLES, strict=True):
        keys = list(rows[0])
        cells = ([json.dumps(row[key], ensure_ascii=False).encode() for row in rows] for key in keys)
        columns = [pa.array(column, pa.binary()) for column in cells]
        book.begin_table(drawing, keys).add(pa.record_batch(columns, names=keys))
    path = folder / "lines.xlsx"
    with path.open("wb") as out:
        book.finish(out.write)
    [pdf] = soffice.convert([path], soffice.PDF, folder / "pdf")
    command = ["pdftotext", "-bbox", str(pdf), "-"]
    pages = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert pages.count("<page ") == 1
    return {word: (float(top) + float(bottom)) / 2 for top, bottom, word in WORD.findall(pages)}
