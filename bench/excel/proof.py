"""Proof that a book holds the cells that its writer was given, all of them, in order, read back by another's reader."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from python_calamine import CalamineWorkbook

from bench.excel import content

CELLS = "xl/"


class WorkbooksDiffer(Exception):
    """A book is not what its writer was given: the run does not count."""


Fingerprint = tuple[tuple[str, int, int], ...]


def require_equal(books: Sequence[Path], typed: Path, heads: int) -> None:
    """Compare every cell below the heads by value and by type: a number is no text, and a moment no number.

    Of several books each has the heads, and the rows go on from one to the next.
    """
    cells = chain.from_iterable(_below_heads(book, heads) for book in books)
    done = 0
    for expected in content.read_batches(typed):
        columns = list(zip(*islice(cells, expected.num_rows), strict=True))
        if len(columns) != expected.num_columns:
            raise WorkbooksDiffer(f"{len(columns)} columns of row {done:,} and on, not {expected.num_columns}")
        for name, found, right in zip(content.COLUMNS, columns, _columns(expected), strict=True):
            _require_column(name, done, list(found), right)
        done += expected.num_rows
    if rest := sum(1 for _ in cells):
        raise WorkbooksDiffer(f"{rest:,} rows too many")


def fingerprint(book: Path) -> Fingerprint:
    """What makes two books the same for a reader: name, checksum and length of each part but the properties."""
    with zipfile.ZipFile(book) as parts:
        found = (part for part in parts.infolist() if part.filename.startswith(CELLS))
        return tuple((part.filename, part.CRC, part.file_size) for part in found)


def _below_heads(book: Path, heads: int) -> Iterator[list[Any]]:
    with book.open("rb") as file:
        yield from islice(CalamineWorkbook.from_filelike(file).get_sheet_by_index(0).iter_rows(), heads, None)


def _columns(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """As a reader gives cells: gaps are empty texts."""
    for column in batch.columns:
        yield ["" if cell is None else cell for cell in column.to_pylist()]


def _require_column(name: str, offset: int, found: list[Any], right: list[Any]) -> None:
    if len(found) == len(right) and found == right and _same_types(found, right):
        return
    for place, expected in enumerate(right):
        cell = found[place] if place < len(found) else "no row"
        if cell != expected or not _same_types([cell], [expected]):
            raise WorkbooksDiffer(f"{name} of row {offset + place:,} is {cell!r}, not {expected!r}")


def _same_types(found: list[Any], right: list[Any]) -> bool:
    """Python holds `True == 1.0`; a book must not. A reader gives every number as a float."""
    expected = {float if kind is int else kind for kind in map(type, right)}
    return {float if kind is int else kind for kind in map(type, found)} == expected
