"""Chunks: rows that come in batches of any size, brought together for work on whole columns.

Such work wants many rows, the caches of a processor want few bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa

CELLS: Final = 500_000
ROWS_MAX: Final = 16_384
BYTES: Final = 8 * 1024 * 1024

Chunk: TypeAlias = list[pa.RecordBatch]
"""Parts of batches, not yet joined: who works on them does that, so that they lie in its cache."""


class Chunks:
    """Batches on their way into chunks, for tables of so many columns."""

    def __init__(self, columns: int) -> None:
        self._chunk_rows = max(1, min(ROWS_MAX, CELLS // max(1, columns)))
        self._waiting: Chunk = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Take a batch; the chunks that are full now."""
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        while rows := batch.num_rows:
            room = max(1, min(self._chunk_rows - self._rows, (BYTES - self._bytes) // row_bytes))
            taken = min(room, rows)
            self._waiting.append(batch if taken == rows else batch.slice(0, taken))
            self._rows += taken
            self._bytes += taken * row_bytes
            if taken == room:
                yield from self.rest()
            batch = batch.slice(taken)

    def rest(self) -> Iterator[Chunk]:
        """What waits, as one chunk, if anything does."""
        if self._waiting:
            yield self._waiting
        self._waiting, self._rows, self._bytes = [], 0, 0
