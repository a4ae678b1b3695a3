"""Downloads in the demo: an export to CSV, and one to a workbook with a template; both are compared cell by cell."""

from __future__ import annotations

import asyncio
import csv
import os
import shutil
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from demo.part import Demo, Show, WrongOutcome
from haulage import Client, Download, DownloadRequest, FileType
from sims import rows as sample

SEED: Final = 20_260_101
CSV_ROWS: Final = 200_000
BOOK_ROWS: Final = 20_000
PAGE_SIZE: Final = 250
TITLE: Final = "Orders"
COLUMNS: Final = {"id": "Number", "product": "Product", "amount": "Amount", "city": "City"}
HEAD_ROWS: Final = 3
"""Title, and two levels of column heads."""
BOOK: Final = "orders.xlsx"
FIRST_PAGE: Final = 'pdf:calc_pdf_Export:{"PageRange":{"type":"string","value":"1"}}'
"""Not PNG: that filter is missing where only LibreOffice's tables are installed."""
DRAW_SECONDS: Final = 60.0
TEMPLATE: Final = [
    {"title": "Order", "children": [{"name": name, "title": COLUMNS[name]} for name in ("id", "product")]},
    {"title": "Sale", "children": [{"name": name, "title": COLUMNS[name]} for name in ("amount", "city")]},
]


@dataclass
class DownloadsPart:
    """Exports of the sample source."""

    system: str = "downloads"
    _files: dict[FileType, Path] = field(default_factory=dict)

    async def prepare(self, demo: Demo) -> None:
        """Nothing is to be configured: a source is any address."""

    async def run(self, demo: Demo, show: Show) -> str:
        """Export both files, one after the other."""
        source = f"{demo.stand_ins['source']}/rows?seed={SEED}&rows="
        text = DownloadRequest(source_url=f"{source}{CSV_ROWS}", file_name="orders", page_size=PAGE_SIZE)
        book = DownloadRequest(
            source_url=f"{source}{BOOK_ROWS}",
            type=FileType.EXCEL,
            file_name="orders",
            page_size=PAGE_SIZE,
            title=TITLE,
            template=TEMPLATE,
        )
        async with Client(demo.api, demo.key) as client:
            for request, before in ((text, 0), (book, CSV_ROWS)):
                download = await _export(client, request, before, show)
                saved = await client.save(download, demo.folder / download.file_name)
                self._files[request.type or FileType.CSV] = saved.path
        return f"exported {CSV_ROWS:,} rows to CSV, {BOOK_ROWS:,} to a workbook with a template"

    async def check(self, demo: Demo) -> str:
        """Compare every cell of both files with the source's rows."""
        await asyncio.to_thread(check_csv, self._files[FileType.CSV])
        await asyncio.to_thread(check_book, self._files[FileType.EXCEL])
        return f"every cell of {CSV_ROWS + BOOK_ROWS:,} rows"


async def _export(client: Client, request: DownloadRequest, before: int, show: Show) -> Download:
    download = await client.create(request)
    async for download in client.watch(download.task_id):  # noqa: B020 (each replaces the one before)
        done, total = before + download.rows, CSV_ROWS + BOOK_ROWS
        show(done, total, f"{done:,} of {total:,} rows")
    return download


def check_csv(path: Path) -> None:
    """Compare every cell of the text with the source's rows; raise WrongOutcome at the first difference."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        _compare(path, "head", next(lines), list(sample.row(SEED, 0)))
        count = 0
        for number, cells in enumerate(lines):
            _compare(path, f"row {number}", cells, [_format(value) for value in sample.row(SEED, number).values()])
            count += 1
    _compare(path, "number of rows", count, CSV_ROWS)


def check_book(path: Path) -> None:
    """Compare title, heads and every cell of the workbook; raise WrongOutcome at the first difference."""
    rows = _read_sheet(path)
    heads = [next(rows) for _ in range(HEAD_ROWS)]
    _compare(path, "title", heads[0][0], TITLE)
    _compare(path, "head", heads[-1], list(COLUMNS.values()))
    count = 0
    for number, cells in enumerate(rows):
        row = sample.row(SEED, number)
        found = [int(cells[0]), cells[1], Decimal(cells[2]), cells[3]]
        _compare(path, f"row {number}", found, [row[name] for name in COLUMNS])
        count += 1
    _compare(path, "number of rows", count, BOOK_ROWS)


def _read_sheet(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each row of the first sheet, as texts."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(path) as book:
        shared: list[str] = []
        if "xl/sharedStrings.xml" in book.namelist():
            strings = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))  # noqa: S314 (our own file)
            shared = ["".join(text.text or "" for text in each.iter(f"{space}t")) for each in strings]
        with book.open("xl/worksheets/sheet1.xml") as sheet:
            for _, row in ElementTree.iterparse(sheet):  # noqa: S314 (our own file)
                if row.tag == f"{space}row":
                    yield [_read_cell(cell, space, shared) for cell in row]
                    row.clear()


def _read_cell(cell: ElementTree.Element, space: str, shared: list[str]) -> str:
    text = "".join(each.text or "" for each in cell.iter() if each.tag in (f"{space}v", f"{space}t"))
    return shared[int(text)] if cell.get("t") == "s" else text


def draw_book(folder: Path) -> str:
    """Draw the first page of the workbook in a folder, where LibreOffice is installed; return a sentence about that."""
    path = folder / BOOK
    program = shutil.which("soffice")
    if program is None:
        return "LibreOffice is not installed, so there is no picture of the workbook; open it in any program for .xlsx."
    with tempfile.TemporaryDirectory() as profile:
        command = [program, f"-env:UserInstallation={Path(profile).as_uri()}", "--headless", "--convert-to", FIRST_PAGE]
        process = subprocess.Popen(
            [*command, "--outdir", str(folder), str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(DRAW_SECONDS)
        except subprocess.TimeoutExpired:
            # The program is a script; what it has started would go on.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    picture = path.with_suffix(".pdf")
    if picture.exists():
        return f"The first page of the workbook, as LibreOffice shows it: {picture}."
    return "LibreOffice made no picture of the workbook; open it in any program for .xlsx."


def _compare(path: Path, place: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongOutcome(f"The {place} of {path} is {found}, not {expected}.")


def _format(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return str(value)
