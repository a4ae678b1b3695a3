"""The staging format of files that are rendered: frames of Arrow that hold every cell as the source wrote it.

The type of a column is known only when its last cell has been seen, so nothing is interpreted while pages come in. Each
frame is an Arrow IPC message: the head is a schema, each page one record batch. Every column is binary and holds the
JSON text of its cells, `null` included.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

from domain.downloads.sinks.frames import framed

CONTENT_TYPE = "application/vnd.apache.parquet"


class ArrowSink:
    """Pages as record batches, from which assembly renders a Parquet file."""

    extension = "parquet"
    content_type = CONTENT_TYPE
    rendered = True

    def head(self, columns: Sequence[str]) -> bytes:
        """The frame of the schema."""
        return _frame(schema(columns))

    def page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """The frame of a record batch; it names no columns, their order is what counts."""
        if not rows:
            return b""
        columns = [_binary(cells) for cells in zip(*rows, strict=True)]
        return _frame(pa.record_batch(columns, names=[str(place) for place in range(len(columns))]))


def schema(columns: Sequence[str]) -> pa.Schema:
    """All columns, each holding JSON text."""
    return pa.schema([pa.field(name, pa.binary()) for name in columns])


def _frame(message: pa.Schema | pa.RecordBatch) -> bytes:
    return framed(message.serialize().to_pybytes())


def _binary(cells: Sequence[bytes]) -> pa.Array:
    """An Arrow column by its two buffers: the cells joined, and where each ends."""
    ends: Iterable[int] = accumulate(map(len, cells), initial=0)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers)
