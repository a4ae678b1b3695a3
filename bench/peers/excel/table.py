"""The table that every writer is given: an Arrow file of typed columns, read in the form that a writer takes best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

SHEET = "rows"
DATETIME_FORMAT = "yyyy-mm-dd hh:mm:ss"
MONEY_FORMAT = "#,##0.00"
MONEY, MOMENT = "amount", "ordered_at"

Row = tuple[Any, ...]


def whole(path: str) -> pa.Table:
    """All of it in memory, as one chunk."""
    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).read_all().combine_chunks()


def columns(path: str) -> list[str]:
    """What its columns are called."""
    with pa.OSFile(path) as file:
        names: list[str] = pa.ipc.open_file(file).schema.names
    return names


def rows(path: str) -> Iterator[list[Row]]:
    """Python values, some thousand rows at a time: a writer that keeps no rows is not charged for ours."""
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            batch = reader.get_batch(place)
            yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def book(folder: str) -> str:
    """Where a writer's book goes."""
    return str(Path(folder) / "book.xlsx")
