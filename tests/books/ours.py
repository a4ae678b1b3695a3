"""The random books of `cases` by our own writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa

from excel.template.models import TableTextsAndTemplate, WorkbookLayout
from excel.workbook import Workbook
from tests.books.cases import Case, Table

BATCH_ROWS_MAX = 6


def write(case: Case, path: Path) -> None:
    """Rows come in batches of any size, on one thread or two: neither makes another book."""
    chance = Random(len(case.tables[0].rows))
    drawings = [TableTextsAndTemplate(**table.drawing) for table in case.tables]
    book = Workbook(WorkbookLayout(tables=drawings, **case.book), time_zone=case.zone, threads=chance.choice([1, 2]))
    for table, drawing in zip(case.tables, drawings, strict=True):
        body = book.begin_table(drawing, table.keys)
        for batch in _batches(table, chance):
            body.add(batch)
    with path.open("wb") as out:
        book.finish(out.write)


def _batches(table: Table, chance: Random) -> Iterator[pa.RecordBatch]:
    start = 0
    while start < len(table.rows):
        stop = start + chance.randint(1, BATCH_ROWS_MAX)
        columns = zip(*table.rows[start:stop], strict=True)
        arrays = [pa.array([cell.encode() for cell in cells], pa.binary()) for cells in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=list(map(str, range(len(arrays)))))
        start = stop
