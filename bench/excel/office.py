"""Whether LibreOffice reads our book as it was meant: its CSV of the book, compared cell by cell."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bench import soffice
from bench.excel import content
from bench.excel.contenders import HaulageWriter, WriterInput, run
from bench.report import Figure

READ_AS: dict[str, Callable[[str], Any]] = {
    "id": int,
    "amount": float,
    "quantity": int,
    "paid": {"TRUE": True, "FALSE": False}.__getitem__,
    "ordered_at": datetime.fromisoformat,
}


async def figures(writer: HaulageWriter, work: WriterInput, folder: Path) -> list[Figure]:
    """How many cells differ; nothing where there is no LibreOffice."""
    if not soffice.is_installed():
        print(f"What LibreOffice reads of our book is not measured. {soffice.MISSING}")
        return []
    await run(writer, work, folder)
    (table,) = await asyncio.to_thread(soffice.convert, [folder / "book.xlsx"], soffice.CSV, folder / "converted")
    wrong = await asyncio.to_thread(_find_differing_cells, table, work.typed, writer.heads)
    how = "`soffice --headless --convert-to csv` of our book, every cell by value"
    return [
        Figure(
            f"cells that LibreOffice reads otherwise, {work.rows:,} rows",
            wrong,
            "cells",
            how,
            "= 0",
            wrong == 0,
        )
    ]


def _find_differing_cells(path: Path, typed: Path, heads: int) -> int:
    with path.open(encoding="utf-8", newline="") as file:
        rows = islice(csv.reader(file), heads, None)
        wrong = sum(_count_differences(rows, batch.to_pylist()) for batch in content.read_batches(typed))
        return wrong + len(content.COLUMNS) * sum(1 for _ in rows)


def _count_differences(rows: Iterator[list[str]], expected: list[dict[str, Any]]) -> int:
    found = list(islice(rows, len(expected)))
    missing = len(content.COLUMNS) * (len(expected) - len(found))
    differing: int = sum(
        _read(name, cell) != ("" if right is None else right)
        for cells, row in zip(found, expected, strict=False)
        for cell, (name, right) in zip(cells, row.items(), strict=True)
    )
    return missing + differing


def _read(name: str, cell: str) -> Any:
    try:
        return READ_AS.get(name, str)(cell)
    except (KeyError, ValueError):
        return cell
