"""The staging format of files that are rendered: frames of Arrow that hold every cell as the source wrote it.

What a column or a cell is taken for is decided when the file is rendered, so nothing is interpreted while pages come
in. Each frame is an Arrow IPC message, packed by LZ4: the head is a schema, each page one record batch. Every column is
binary and holds the JSON text of its cells, `null` included.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

from domain.downloads import flat_arrow
from domain.downloads.flat import Grid
from domain.downloads.sinks.frames import Frame

PARQUET_TYPE = "application/vnd.apache.parquet"
EXCEL_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

_LZ4 = pa.Codec("lz4_raw")


class ArrowSink:
    """Pages as record batches, from which a file is rendered."""

    rendered = True

    def __init__(self, extension: str, content_type: str) -> None:
        self.extension = extension
        self.content_type = content_type

    def head(self, columns: Sequence[str]) -> bytes:
        """The frame of the schema."""
        return _frame(schema(columns), 0)

    def page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """The frame of a record batch; it names no columns, their order is what counts."""
        if not rows:
            return b""
        return _page([_binary(cells) for cells in zip(*rows, strict=True)])

    def flat(self, grid: Grid, places: Sequence[int | None]) -> bytes:
        """The same of a flat page."""
        return _page(flat_arrow.columns(grid, places))


def schema(columns: Sequence[str]) -> pa.Schema:
    """All columns, each holding JSON text."""
    return pa.schema([pa.field(name, pa.binary()) for name in columns])


def staged_schema(head: Frame) -> pa.Schema:
    """The columns that the first frame tells of."""
    return pa.ipc.read_schema(_plain(head))


def batch(page: Frame, columns: pa.Schema) -> pa.RecordBatch:
    """The rows of a page."""
    return pa.ipc.read_record_batch(_plain(page), columns)


def table(pages: Iterable[Frame], columns: pa.Schema) -> pa.Table:
    """The rows of several pages."""
    return pa.Table.from_batches([batch(page, columns) for page in pages], columns)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _page(columns: Sequence[pa.Array]) -> bytes:
    batch = pa.record_batch(columns, names=[str(place) for place in range(len(columns))])
    return _frame(batch, batch.num_rows)


def _frame(message: pa.Schema | pa.RecordBatch, rows: int) -> bytes:
    plain = message.serialize()
    return Frame(_LZ4.compress(plain, asbytes=True), plain.size, rows).to_bytes()


def _plain(frame: Frame) -> pa.Buffer:
    return _LZ4.decompress(frame.packed, decompressed_size=frame.plain_bytes)


def _binary(cells: Sequence[bytes]) -> pa.Array:
    """An Arrow column by its two buffers: the cells joined, and where each ends."""
    ends: Iterable[int] = accumulate(map(len, cells), initial=0)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers)
