"""Chunks: rows that come in batches of any size, brought together for work on whole columns.

Such work wants many rows, the caches of a processor want few bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

CELLS: Final = 500_000
ROWS_MAX: Final = 16_384
BYTES: Final = 8 * 1024 * 1024


class Chunks:
    """Batches on their way into chunks, for tables of so many columns."""

    def __init__(self, columns: int) -> None:
        self._chunk_rows = max(1, min(ROWS_MAX, CELLS // max(1, columns)))
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; the chunks that are full now."""
        while batch.num_rows:
            light = batch.num_rows * max(1, BYTES - self._bytes) // max(1, batch.nbytes)
            taken = batch.slice(0, max(1, min(self._chunk_rows - self._rows, light)))
            self._waiting.append(taken)
            self._rows += taken.num_rows
            self._bytes += taken.nbytes
            if self._rows >= self._chunk_rows or self._bytes >= BYTES or taken.num_rows < batch.num_rows:
                yield from self.rest()
            batch = batch.slice(taken.num_rows)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What waits, as one chunk, if anything does."""
        if self._waiting:
            yield pa.concat_batches(self._waiting)
        self._waiting, self._rows, self._bytes = [], 0, 0
